package etcdcluster

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote/remotetest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

func TestClusterToken(t *testing.T) {
	machines := []string{"a", "b", "c"}
	for _, tt := range []struct {
		name  string
		found map[string]begun
		token string
		stale []string
		says  string
	}{
		{"new machines", nil, "own", nil, ""},
		{"interrupted before a start", map[string]begun{"a": {token: "old"}, "b": {token: "own"}}, "own", []string{"a"}, ""},
		{"interrupted while members start", map[string]begun{"b": {token: "old", data: true}, "c": {token: "old"}}, "old", nil, ""},
		{"interrupted twice", map[string]begun{"a": {token: "first"}, "c": {token: "second", data: true}}, "second", []string{"a"}, ""},
		{"data of both", map[string]begun{"a": {token: "first", data: true}, "c": {token: "second", data: true}}, "", nil, "stop etcd on c, delete /var/lib/etcd/member and /etc/etcd/bootstrap.env there"},
	} {
		token, stale, err := clusterToken("own", machines, tt.found)
		if token != tt.token || !slices.Equal(stale, tt.stale) || (err != nil) != (tt.says != "") || err != nil && !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: token %s, stale %q, %v", tt.name, token, stale, err)
		}
	}
}

// etcdMachine returns an operation that makes an etcd cluster on one machine, which passes scripts
// to run.
func etcdMachine(t *testing.T, rec rollout.Record, run func(script string) (string, int)) *operation {
	t.Helper()
	server := remotetest.New(t, "controller-0", run)
	want := Cluster{
		Targets: []fleet.Target{{Host: server.Host, Node: component.Node{Name: "controller-0", PrivateIP: netip.MustParseAddr("10.240.0.10")}}},
		Spec: component.EtcdSpec{
			Version: "3.6.16", Cluster: component.Cluster{Name: "demo", PKI: pki.Ref{EtcdCA: "PEM"}},
			Artifacts: []artifact.Artifact{{Name: artifact.Etcd, Version: "3.6.16", URL: "https://mirror.example.com/etcd.tar.gz", SHA256: strings.Repeat("6b", 32)}},
		},
	}
	pool := remote.NewPool(remote.Config{})
	t.Cleanup(func() { pool.Close() })
	base, err := rollout.NewOperation(&fleet.Fleet{Pool: pool}, want, nil, rec)
	if err != nil {
		t.Fatal(err)
	}
	return want.operate(base)
}

// TestIdentify: two clusters that are made at the same addresses have different tokens, unless the second
// create continues a first start. A cluster that exists is not asked.
func TestIdentify(t *testing.T) {
	t.Parallel()
	const begun = "ETCD_INITIAL_CLUSTER_TOKEN=demo-run-1\n"
	for _, tt := range []struct {
		name      string
		rec       rollout.Record
		bootstrap string // what is on the machine
		data      bool
		token     string
		wiped     bool
	}{
		{"new", rollout.Record{Claim: "run-7"}, "", false, "demo-run-7", false},
		{"begun, with data", rollout.Record{Claim: "run-7"}, begun, true, "demo-run-1", false},
		{"begun, without data", rollout.Record{Claim: "run-7"}, begun, false, "demo-run-7", true},
		{"formed", rollout.Record{Claim: "run-7", Formed: true}, begun, true, "demo-run-7", false},
		{"without claim", rollout.Record{}, "", false, "demo", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var wiped atomic.Bool
			o := etcdMachine(t, tt.rec, func(script string) (string, int) {
				switch {
				case strings.Contains(script, "rm -rf --"):
					wiped.Store(strings.Contains(script, component.EtcdBootstrapEnv) && !strings.Contains(script, memberDir))
				case strings.Contains(script, component.EtcdBootstrapEnv) && tt.bootstrap != "":
					return component.EtcdBootstrapEnv + "\x00" + tt.bootstrap + "\x00", 0
				}
				return "", 0
			})
			seen := host.Observation{Files: map[string]host.File{}, Directories: map[string]host.File{}}
			if tt.bootstrap != "" {
				seen.Files[component.EtcdBootstrapEnv] = host.File{}
			}
			if tt.data {
				seen.Directories[memberDir] = host.File{}
			}
			o.Machines[0].Seen = seen
			if err := o.useToken(o.ownToken()); err != nil {
				t.Fatal(err)
			}
			changed, err := o.identify(t.Context())
			if want := tt.wiped || tt.token == "demo-run-1"; err != nil || changed != want {
				t.Fatalf("changed: %t, %v", changed, err)
			}
			i := slices.IndexFunc(o.Machines[0].Want.State.Files, func(f desired.File) bool { return f.Path == component.EtcdBootstrapEnv })
			if got := component.BegunToken(o.Machines[0].Want.State.Files[i].Content); got != tt.token || o.want.Spec.Token != tt.token {
				t.Errorf("token %s, and %s on the machine; wanted %s", o.want.Spec.Token, got, tt.token)
			}
			if wiped.Load() != tt.wiped {
				t.Errorf("wiped: %t", wiped.Load())
			}
		})
	}
}

// TestUnmountedData: a member whose data volume is not mounted has not lost its data. If it cannot be
// mounted, nothing is planned.
func TestUnmountedData(t *testing.T) {
	t.Parallel()
	var mounted atomic.Bool
	answer := func(found string) (string, int) {
		return "observation 1\x00" + found + "observation end\x00", 0
	}
	run := func(status int) func(string) (string, int) {
		return func(script string) (string, int) {
			switch {
			case strings.Contains(script, deed.DataVolumeUnit):
				mounted.Store(status == 0)
				return deed.DataVolumeUnit, status
			case mounted.Load():
				return answer("directory 41c0:0:0:root:root:4096:1.000000000:1:" + memberDir + "\x00")
			}
			return answer("")
		}
	}
	o := etcdMachine(t, rollout.Record{Formed: true}, run(1))
	o.Machines[0].Want = component.Machine{} // keys do not matter here
	err := o.survey(t.Context())
	var failed *fleet.StepError
	if !errors.As(err, &failed) || failed.Machine != "controller-0" || !strings.Contains(err.Error(), "no member is added or removed") {
		t.Errorf("the volume could not be mounted: %v", err)
	}
	o = etcdMachine(t, rollout.Record{Formed: true}, run(0))
	o.Machines[0].Want = component.Machine{}
	if err := o.survey(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !hasData(o.Machines[0]) {
		t.Error("a member whose volume was not mounted counts as one without data")
	}
}
