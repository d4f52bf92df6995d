package rollout

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

func change(kind host.Kind, target string, restarts ...string) host.Change {
	return host.Change{Kind: kind, Target: target, Restarts: restarts}
}

func targetsOf(changes []host.Change) []string {
	var out []string
	for _, c := range changes {
		out = append(out, c.Target)
	}
	return out
}

func TestOfManagers(t *testing.T) {
	managers, rest := ofManagers([]host.Change{
		change(host.KindFile, "ca.crt", component.APIServerUnit, component.ControllerManagerUnit),
		change(host.KindFile, "manager.kubeconfig", component.ControllerManagerUnit),
		change(host.KindBinary, "kube-apiserver", component.APIServerUnit),
		change(host.KindBinary, "kube-scheduler", component.SchedulerUnit),
		change(host.KindFile, "scheduler.crt"),
		change(host.KindUnit, component.SchedulerUnit),
		change(host.KindUnit, component.APIServerUnit),
	})
	if got, want := targetsOf(managers), []string{"manager.kubeconfig", "kube-scheduler", component.SchedulerUnit}; !slices.Equal(got, want) {
		t.Errorf("managers' = %q, wanted %q", got, want)
	}
	if got, want := targetsOf(rest), []string{"ca.crt", "kube-apiserver", "scheduler.crt", component.APIServerUnit}; !slices.Equal(got, want) {
		t.Errorf("the rest = %q, wanted %q", got, want)
	}
}

func TestWorkerChanges(t *testing.T) {
	for _, tt := range []struct {
		name         string
		changes      []host.Change
		rolls, drain bool
	}{
		{"kubelet configuration", []host.Change{change(host.KindFile, "kubelet.yaml", component.KubeletUnit)}, true, false},
		{"kube-proxy upgrade", []host.Change{change(host.KindBinary, "kube-proxy", component.KubeProxyUnit)}, true, false},
		{"kubelet upgrade", []host.Change{change(host.KindBinary, "kubelet", component.KubeletUnit)}, true, true},
		{"containerd configuration", []host.Change{change(host.KindFile, "config.toml", component.ContainerdUnit)}, true, true},
		{"runc", []host.Change{change(host.KindBinary, "runc")}, true, false},
		{"registry mirrors", []host.Change{change(host.KindFile, "hosts.toml")}, false, false},
		{"nothing", nil, false, false},
	} {
		if rolls, drain := rollsNode(tt.changes), disturbsPods(tt.changes); rolls != tt.rolls || drain != tt.drain {
			t.Errorf("%s: rolls %v, drains %v", tt.name, rolls, drain)
		}
	}
}

// TestWithout holds changes back: what they are about must not be verified yet,
// and everything else must.
func TestWithout(t *testing.T) {
	s := desired.State{
		Directories: []desired.Directory{{Path: "/d"}, {Path: "/e"}},
		Files:       []desired.File{{Path: "/a"}, {Path: "/b"}},
		Binaries: []desired.Binary{
			{Name: "x", Installs: []desired.Install{{Path: "/bin/x"}}},
			{Name: "y", Installs: []desired.Install{{Path: "/bin/y1"}, {Path: "/bin/y2"}}},
		},
		Units:   []desired.Unit{{Name: "x.service"}, {Name: "y.service"}, {Name: "z.service"}},
		Modules: []string{"overlay", "br_netfilter", "nf_conntrack"},
		Sysctls: map[string]string{"net.ipv4.ip_forward": "1", "vm.swappiness": "0", "vm.max_map_count": "9"},
	}
	got := without(s, []host.Change{
		change(host.KindModule, "br_netfilter"), change(host.KindFile, "/etc/modules-load.d/k8s-nf_conntrack.conf"),
		change(host.KindSysctl, "net.ipv4.ip_forward"), change(host.KindFile, "/etc/sysctl.d/90-k8s-vm.swappiness.conf"),
		change(host.KindFile, "/b"), change(host.KindDirectory, "/e"), change(host.KindBinary, "/bin/y2", "y.service"), change(host.KindUnit, "z.service"),
	})
	want := desired.State{Directories: s.Directories[:1], Files: s.Files[:1], Binaries: s.Binaries[:1], Units: s.Units[:1],
		Modules: s.Modules[:1], Sysctls: map[string]string{"vm.max_map_count": "9"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if len(s.Files) != 2 || s.Files[1].Path != "/b" || len(s.Units) != 3 || s.Units[2].Name != "z.service" || len(s.Modules) != 3 || len(s.Sysctls) != 3 {
		t.Error("the state itself was changed")
	}
	old := host.Record{Files: map[string]host.FileRecord{"/b": {SHA256: "old"}, "/a": {SHA256: "old"}}}
	rec := keepRecords(host.Record{Files: map[string]host.FileRecord{"/a": {SHA256: "new"}}}, old, []host.Change{change(host.KindFile, "/b")})
	if rec.Files["/a"].SHA256 != "new" || rec.Files["/b"].SHA256 != "old" {
		t.Errorf("records = %v", rec.Files)
	}
}

func TestLeaving(t *testing.T) {
	at := func(name, address string) fleet.Target {
		return fleet.Target{Host: remote.Host{Address: address}, Node: component.Node{Name: name}}
	}
	got := leaving([]fleet.Target{at("a", "1"), at("b", "2")}, []fleet.Target{at("a", "9"), at("b", "2"), at("c", "3")})
	if len(got) != 1 || got[0].Node.Name != "c" {
		t.Errorf("leaving = %v, wanted c: a machine replaced under the same name stays", got)
	}
}

func TestJoinedWith(t *testing.T) {
	wanted := []component.Node{{Name: "c", PrivateIP: netip.MustParseAddr("10.0.0.3")}}
	members := []etcd.Member{
		{ID: 2, Name: "b", PeerURLs: []string{"https://10.0.0.2:2380"}},
		{ID: 3, PeerURLs: []string{"https://10.0.0.3:2380"}},
		{ID: 0xd, PeerURLs: []string{"https://10.0.0.4:2380"}},
		{ID: 1, Name: "a", PeerURLs: []string{"https://10.0.0.1:2380"}},
	}
	got, err := joinedWith(members, wanted)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, n := range got {
		words = append(words, n.Name+"="+component.EtcdPeerURL(n))
	}
	if want := "a=https://10.0.0.1:2380 b=https://10.0.0.2:2380 c=https://10.0.0.3:2380 d=https://10.0.0.4:2380"; strings.Join(words, " ") != want {
		t.Errorf("initial cluster = %q, wanted %q", words, want)
	}
	for _, url := range []string{"https://10.0.0.1:2381", "https://name:2380", "%"} {
		if _, err := joinedWith([]etcd.Member{{Name: "a", PeerURLs: []string{url}}}, nil); err == nil {
			t.Errorf("a peer on %s was accepted", url)
		}
	}
	if _, err := joinedWith([]etcd.Member{{Name: "a"}}, nil); err == nil {
		t.Error("a member without peer address was accepted")
	}
}

func TestReportAdd(t *testing.T) {
	r := newReport()
	r.Drift["a"] = "one"
	r.Unreachable["gone"] = errors.New("no answer")
	r.addWords("a", []string{"two", "three"})
	r.addWords("b", []string{"four"})
	r.addWords("gone", []string{"five"})
	r.addWords("c", nil)
	if diff := cmp.Diff(map[string]string{"a": "one; two; three", "b": "four"}, r.Drift); diff != "" {
		t.Error(diff)
	}
}

func TestStale(t *testing.T) {
	ref := func(kind, name string) kube.ObjectRef {
		return kube.ObjectRef{APIVersion: "v1", Kind: kind, Name: name}
	}
	got := stale([]kube.ObjectRef{ref("ConfigMap", "old"), ref("ConfigMap", "kept")}, Addon{})
	if len(got) != 2 {
		t.Errorf("stale = %v, wanted everything when nothing is wanted", got)
	}
}

func TestRenewals(t *testing.T) {
	m := &convergence{
		want: component.Machine{Certificates: []pki.Slot{
			{Name: "good", CertPath: "/good.crt", KeyPath: "/good.key"},
			{Name: "due", CertPath: "/due.crt", KeyPath: "/due.key"},
			{Name: "missing", CertPath: "/missing.crt", KeyPath: "/missing.key"},
			{Name: "other key", CertPath: "/other.crt", KeyPath: "/other.key"},
			{Name: "foreign", CertPath: "/foreign.crt", KeyPath: "/foreign.key"},
		}},
		pairs: map[string]pairVerdict{
			"due":       {reissue: []string{"due for renewal"}},
			"missing":   {reissue: []string{"missing"}},
			"other key": {reissue: []string{"not the pair that was written"}},
			"foreign":   {reissue: []string{"not the pair that was written"}, foreign: []string{"expired", "another name"}},
		},
		changes: []host.Change{
			change(host.KindFile, "/missing.crt"), change(host.KindFile, "/other.key"), change(host.KindFile, "/foreign.crt"),
		},
	}
	// What the change of the file says already is not said again.
	want := []string{"certificate /due.crt: due for renewal", "certificate /foreign.crt: expired, another name"}
	if d := cmp.Diff(want, m.renewals()); d != "" {
		t.Error(d)
	}
}

// TestWithNext: what the engine says of a machine comes with the command to run next.
func TestWithNext(t *testing.T) {
	m := fleet.Target{Host: remote.Host{Name: "worker-0", Address: "192.0.2.7", User: "admin"}}
	for _, tt := range []struct {
		failed host.ApplyError
		next   string
	}{
		{host.ApplyError{Step: "download kubelet 1.36.4 from https://dl.example/kubelet", Err: errors.New("curl: (7) refused")},
			"curl --verbose --head https://dl.example/kubelet"},
		{host.ApplyError{Step: "install packages haproxy nftables", Err: errors.New("Failed to fetch http://deb.example/InRelease  503  Service Unavailable")},
			"curl --verbose --head http://deb.example/InRelease"},
		{host.ApplyError{Step: "install packages haproxy nftables", Err: errors.New("Failed to fetch mirror+file:/etc/apt/mirrors/debian.list/dists/trixie/InRelease  503  Service Unavailable")},
			"sudo apt-get install haproxy nftables"},
		{host.ApplyError{Step: "install packages haproxy nftables", Err: errors.New("Unable to locate package haproxy")},
			"sudo apt-get install haproxy nftables"},
		{host.ApplyError{Step: "wait for", Unit: "cloud-config.service", Err: errors.New("cloud-init is still in its stage config")},
			"sudo journalctl --unit cloud-config.service --lines 50 --no-pager"},
	} {
		got := withNext(m, &tt.failed).Error()
		if want := "\nnext: ssh admin@192.0.2.7 " + tt.next; !strings.HasSuffix(got, want) {
			t.Errorf("%s\nwant it to end with%s", got, want)
		}
	}
}

// TestRoleIsValue: what is no role, or not the same kind of role, is refused
// before any machine is reached.
func TestRoleIsValue(t *testing.T) {
	e := &Engine{Fleet: &fleet.Fleet{}}
	var none *Etcd
	for _, tt := range []struct {
		want, prior Role
		error       string
	}{
		{nil, nil, "a role is a value, not a <nil>"},
		{none, nil, "a role is a value, not a *rollout.Etcd"},
		{Etcd{}, none, "a rollout.Etcd does not follow a *rollout.Etcd"},
		{Etcd{}, Workers{}, "a rollout.Etcd does not follow a rollout.Workers"},
	} {
		if _, err := e.Apply(t.Context(), tt.want, tt.prior, Record{}); err == nil || err.Error() != tt.error {
			t.Errorf("%T after %T: %v, wanted %q", tt.want, tt.prior, err, tt.error)
		}
	}
}
