package provider

import (
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// Tests of role resources that need no machines, only plans.

// downloads are the checksums of everything that a worker and a controller download, so that a plan
// knows every file.
var downloads = func() string {
	var out strings.Builder
	for _, file := range []string{
		"dl.k8s.io/release/v1.36.4/bin/linux/amd64/kube-apiserver", "dl.k8s.io/release/v1.36.4/bin/linux/amd64/kube-controller-manager",
		"dl.k8s.io/release/v1.36.4/bin/linux/amd64/kube-scheduler", "dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet", "dl.k8s.io/release/v1.36.4/bin/linux/amd64/kube-proxy",
		"github.com/containerd/containerd/releases/download/v2.3.7/containerd-2.3.7-linux-amd64.tar.gz",
		"github.com/containernetworking/plugins/releases/download/v1.9.1/cni-plugins-linux-amd64-v1.9.1.tgz",
		"github.com/opencontainers/runc/releases/download/v1.5.2/runc.amd64",
		"github.com/etcd-io/etcd/releases/download/v3.6.16/etcd-v3.6.16-linux-amd64.tar.gz",
	} {
		out.WriteString(strings.Repeat("0", 64) + "  " + file + "\n")
	}
	return out.String()
}()

// roles is a provider without AWS and the configurations of one cluster's roles.
type roles struct {
	*core
	data                     *session.Session
	etcd, controlPlane, pool values
}

func newRoles(t *testing.T) roles {
	t.Helper()
	p := New("test")
	c := newCore(t, p, values{"ssh": values{"private_key": sshKey(t)}, "artifact_checksums": downloads})
	keys := c.instance("k8s_pki")
	keys.must(values{"cluster": "demo", "key_store": "state"})
	host := func(name, ip string) values {
		return values{"name": name, "address": "203.0.113.9", "private_ip": ip, "host_key": publicKey(t), "pod_cidr": "10.200.0.0/24"}
	}
	return roles{c, p.data[0],
		values{"version": "3.6.16", "hosts": []any{host("controller-0", "10.240.0.10")}, "pki": keys.get("ref")},
		values{
			"version": "1.36.4", "hosts": []any{host("controller-0", "10.240.0.10")}, "pki": keys.get("ref"),
			"etcd": values{"cluster": "demo", "version": "3.6.16", "endpoints": []any{"https://10.240.0.10:2379"}},
			"lb": values{"cluster": "demo", "endpoint": "https://203.0.113.1:6443", "private_endpoint": "https://10.240.0.30:6443",
				"names": []any{"203.0.113.1", "10.240.0.30"}},
		},
		values{
			"version": "1.36.4", "hosts": []any{host("worker-0", "10.240.0.20")}, "pki": keys.get("ref"),
			"control_plane": values{
				"cluster": "demo", "version": "1.36.4", "endpoint": "https://203.0.113.1:6443", "private_endpoint": "https://10.240.0.30:6443",
				"pod_cidr": "10.200.0.0/16", "service_cidr": "10.32.0.0/24", "dns_ip": "10.32.0.10", "domain": "cluster.local",
			},
		},
	}
}

// backup is a configuration of k8s_etcd_backup.
func (c roles) backup() values {
	return values{"hosts": c.etcd["hosts"], "pki": c.etcd["pki"], "etcd": c.controlPlane["etcd"], "bucket": "example-snapshots", "region": "us-east-1"}
}

func with(config values, more values) values {
	out := maps.Clone(config)
	maps.Copy(out, more)
	return out
}

// applied plans a configuration and uses the plan as the applied state, as if nothing but the claim
// and the newest snapshot were computed, and there were none.
func (c *core) applied(resource string, config values) *instance {
	c.t.Helper()
	i := c.instance(resource)
	ch := i.plan(config)
	var attributes map[string]tftypes.Value
	if err := ch.planned.As(&attributes); err == nil && !attributes["claim"].IsKnown() {
		attributes["claim"] = tftypes.NewValue(tftypes.String, "run-1")
		if newest, ok := attributes["newest"]; ok {
			attributes["newest"] = tftypes.NewValue(newest.Type(), nil)
		}
		ch.planned = tftypes.NewValue(i.schema.ValueType(), attributes)
	}
	if failure := ch.failure(); failure != "" || !ch.planned.IsFullyKnown() {
		c.t.Fatalf("%s: %s: %v", resource, failure, plain(ch.planned))
	}
	i.state, i.private = ch.planned, ch.private
	i.reload()
	return i
}

// reload writes the state to a file as JSON and reads it back.
func (i *instance) reload() {
	i.core.t.Helper()
	raw, err := json.Marshal(stateJSON(i.core.t, i.schema.ValueType(), i.state))
	if err != nil {
		i.core.t.Fatal(err)
	}
	resp, err := i.core.server.UpgradeResourceState(i.core.t.Context(), &tfprotov6.UpgradeResourceStateRequest{
		TypeName: i.typeName, Version: i.schema.Version, RawState: &tfprotov6.RawState{JSON: raw},
	})
	if err != nil {
		i.core.t.Fatal(err)
	}
	i.core.fatal(resp.Diagnostics)
	read := i.unmarshal(resp.UpgradedState)
	if diffs, err := i.state.Diff(read); err != nil || len(diffs) > 0 {
		i.core.t.Errorf("%s: the state became another one on disk: %v %v", i.typeName, diffs, err)
	}
	i.state = read
}

// stateJSON returns a value as Terraform writes it to the state: with its type if the schema does
// not define one.
func stateJSON(t *testing.T, typ tftypes.Type, v tftypes.Value) any {
	t.Helper()
	if v.IsNull() {
		return nil
	}
	below := func(at tftypes.Type, v tftypes.Value) any { return stateJSON(t, at, v) }
	switch typ := typ.(type) {
	case tftypes.Object:
		members, out := map[string]tftypes.Value{}, values{}
		_ = v.As(&members)
		for name, m := range members {
			out[name] = below(typ.AttributeTypes[name], m)
		}
		return out
	case tftypes.Map:
		members, out := map[string]tftypes.Value{}, values{}
		_ = v.As(&members)
		for name, m := range members {
			out[name] = below(typ.ElementType, m)
		}
		return out
	case tftypes.List, tftypes.Set, tftypes.Tuple:
		elements, out := []tftypes.Value{}, []any{}
		_ = v.As(&elements)
		for n, e := range elements {
			var at tftypes.Type
			switch typ := typ.(type) {
			case tftypes.List:
				at = typ.ElementType
			case tftypes.Set:
				at = typ.ElementType
			case tftypes.Tuple:
				at = typ.ElementTypes[n]
			}
			out = append(out, below(at, e))
		}
		return out
	}
	if typ.Is(tftypes.DynamicPseudoType) {
		name, err := v.Type().MarshalJSON() //nolint:staticcheck // Terraform's own way to write a type
		if err != nil {
			t.Fatal(err)
		}
		return values{"type": json.RawMessage(name), "value": below(v.Type(), v)}
	}
	if s, ok := plain(v).(string); ok && typ.Is(tftypes.Number) {
		return json.Number(s)
	}
	return plain(v)
}

// files returns the planned digests, without those of certificates.
func (i *instance) files() values { files, _ := i.get("files").(values); return files }
