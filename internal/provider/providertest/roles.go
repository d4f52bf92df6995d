package providertest

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// Unconnected replaces the connections to machines by ones that fail, and counts the attempts.
func (r RoleSet) Unconnected() *atomic.Int32 {
	var attempts atomic.Int32
	r.Data.Pool = remote.NewPool(remote.Config{Dial: func(context.Context, string, string) (net.Conn, error) {
		attempts.Add(1)
		return nil, errors.New("this machine is off")
	}})
	r.T.Cleanup(func() { _ = r.Data.Pool.Close() })
	return &attempts
}

// Downloads are the checksums of everything that a worker and a controller download, so that a plan
// knows every file.
var Downloads = func() string {
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

// RoleSet is a provider without AWS and the configurations of one cluster's roles.
type RoleSet struct {
	*Core
	Data                     *session.Session
	Etcd, ControlPlane, Pool Values
}

func NewRoles(t *testing.T) RoleSet {
	t.Helper()
	p := provider.New("test")
	c := NewCore(t, p, Values{"ssh": Values{"private_key": SSHKey(t)}, "artifact_checksums": Downloads})
	keys := c.Instance("k8s_pki")
	keys.Must(Values{"cluster": "demo", "key_store": "state"})
	host := func(name, ip string) Values {
		return Values{"name": name, "address": "203.0.113.9", "private_ip": ip, "host_key": PublicKey(t), "pod_cidr": "10.200.0.0/24"}
	}
	return RoleSet{c, p.Sessions[0],
		Values{"version": "3.6.16", "hosts": []any{host("controller-0", "10.240.0.10")}, "pki": keys.Get("ref")},
		Values{
			"version": "1.36.4", "hosts": []any{host("controller-0", "10.240.0.10")},
			"etcd": Values{"pki": keys.Get("ref"), "version": "3.6.16", "endpoints": []any{"https://10.240.0.10:2379"}},
			"lb": Values{"cluster": "demo", "endpoint": "https://203.0.113.1:6443", "private_endpoint": "https://10.240.0.30:6443",
				"names": []any{"203.0.113.1", "10.240.0.30"}},
		},
		Values{
			"version": "1.36.4", "hosts": []any{host("worker-0", "10.240.0.20")},
			"control_plane": Values{
				"pki": keys.Get("ref"), "version": "1.36.4", "endpoint": "https://203.0.113.1:6443", "private_endpoint": "https://10.240.0.30:6443",
				"pod_cidr": "10.200.0.0/16", "service_cidr": "10.32.0.0/24", "dns_ip": "10.32.0.10", "domain": "cluster.local",
			},
		},
	}
}

// Backup is a configuration of k8s_etcd_backup.
func (c RoleSet) Backup() Values {
	return Values{"hosts": c.Etcd["hosts"], "etcd": c.ControlPlane["etcd"], "bucket": "example-snapshots", "region": "us-east-1"}
}

// WithKeys returns the configuration of a role with other keys: in `pki`, or in the reference that carries it.
func WithKeys(config Values, pki any) Values {
	for _, carrier := range []string{"etcd", "control_plane"} {
		if ref, ok := config[carrier].(Values); ok {
			return With(config, Values{carrier: With(ref, Values{"pki": pki})})
		}
	}
	return With(config, Values{"pki": pki})
}

func With(config Values, more Values) Values {
	out := maps.Clone(config)
	maps.Copy(out, more)
	return out
}

// Applied plans a configuration and uses the plan as the applied state, as if nothing but the claim
// and the newest snapshot were computed, and there were none.
func (c *Core) Applied(resource string, config Values) *Instance {
	c.T.Helper()
	i := c.Instance(resource)
	c.anotherPlan()
	defer c.anotherPlan()
	ch := i.Plan(config)
	var attributes map[string]tftypes.Value
	if err := ch.Planned.As(&attributes); err == nil && !attributes["claim"].IsKnown() {
		attributes["claim"] = tftypes.NewValue(tftypes.String, "run-1")
		if newest, ok := attributes["newest"]; ok {
			attributes["newest"] = tftypes.NewValue(newest.Type(), nil)
		}
		ch.Planned = tftypes.NewValue(i.Schema.ValueType(), attributes)
	}
	if failure := ch.Failure(); failure != "" || !ch.Planned.IsFullyKnown() {
		c.T.Fatalf("%s: %s: %v", resource, failure, Plain(ch.Planned))
	}
	i.State, i.Private = ch.Planned, ch.Private
	i.reload()
	return i
}

// anotherPlan makes the provider forget what it knows of a plan: the next one has another process.
func (c *Core) anotherPlan() {
	for _, s := range c.served.Sessions {
		s.Successions = new(session.Successions)
	}
}

// reload writes the state to a file as JSON and reads it back.
func (i *Instance) reload() {
	i.core.T.Helper()
	raw, err := json.Marshal(stateJSON(i.core.T, i.Schema.ValueType(), i.State))
	if err != nil {
		i.core.T.Fatal(err)
	}
	resp, err := i.core.Server.UpgradeResourceState(i.core.T.Context(), &tfprotov6.UpgradeResourceStateRequest{
		TypeName: i.TypeName, Version: i.Schema.Version, RawState: &tfprotov6.RawState{JSON: raw},
	})
	if err != nil {
		i.core.T.Fatal(err)
	}
	i.core.Fatal(resp.Diagnostics)
	read := i.unmarshal(resp.UpgradedState)
	if diffs, err := i.State.Diff(read); err != nil || len(diffs) > 0 {
		i.core.T.Errorf("%s: the state became another one on disk: %v %v", i.TypeName, diffs, err)
	}
	i.State = read
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
		members, out := map[string]tftypes.Value{}, Values{}
		_ = v.As(&members)
		for name, m := range members {
			out[name] = below(typ.AttributeTypes[name], m)
		}
		return out
	case tftypes.Map:
		members, out := map[string]tftypes.Value{}, Values{}
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
		return Values{"type": json.RawMessage(name), "value": below(v.Type(), v)}
	}
	if s, ok := Plain(v).(string); ok && typ.Is(tftypes.Number) {
		return json.Number(s)
	}
	return Plain(v)
}

// Files returns the attribute files of a role's state, as [FilesOf] does.
func (i *Instance) Files() Values { return FilesOf(Values{"files": i.Get("files")}) }

// FilesOf returns the attribute files of a role, with the lines of each file joined; nil if it is unknown.
func FilesOf(role Values) Values {
	files, known := role["files"].(Values)
	if !known {
		return nil
	}
	out := Values{}
	for path, listed := range files {
		lines, known := listed.([]any)
		if !known {
			out[path] = listed // unknown
			continue
		}
		var text strings.Builder
		for _, line := range lines {
			text.WriteString(line.(string) + "\n") //nolint:forcetypeassert // a string or a panic
		}
		out[path] = text.String()
	}
	return out
}

// OfflineCore returns a provider without network access.
func OfflineCore(t *testing.T) *Core {
	t.Helper()
	return NewCore(t, provider.New("test"), Values{
		"region": "us-east-1", "access_key": "a", "secret_key": "b", "endpoints": Values{"ec2": "http://127.0.0.1:1"},
		"ssh": Values{"private_key": SSHKey(t)},
	})
}
