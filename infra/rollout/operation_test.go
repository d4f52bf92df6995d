package rollout

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

func change(kind finding.Kind, target string, restarts ...string) host.Change {
	return host.Change{Finding: finding.Finding{Kind: kind, Target: target}, Restarts: restarts}
}

// TestWithout checks that held changes are not verified yet, and everything else is.
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
		change(finding.Module, "br_netfilter"), change(finding.File, "/etc/modules-load.d/k8s-nf_conntrack.conf"),
		change(finding.Sysctl, "net.ipv4.ip_forward"), change(finding.File, "/etc/sysctl.d/90-k8s-vm.swappiness.conf"),
		change(finding.File, "/b"), change(finding.Directory, "/e"), change(finding.Binary, "/bin/y2", "y.service"), change(finding.Unit, "z.service"),
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
	rec := keepRecords(host.Record{Files: map[string]host.FileRecord{"/a": {SHA256: "new"}}}, old, []host.Change{change(finding.File, "/b")})
	if rec.Files["/a"].SHA256 != "new" || rec.Files["/b"].SHA256 != "old" {
		t.Errorf("records = %v", rec.Files)
	}
}

func TestReportAdd(t *testing.T) {
	r := newReport()
	about := func(subject, file string) finding.Finding {
		return finding.Finding{Subject: subject, Kind: finding.File, Target: file, Problem: finding.Missing}
	}
	r.Find(about("a", "/1"))
	r.Unreachable["gone"] = errors.New("no answer")
	extra := newReport()
	extra.Find(about("gone", "/5"), about("a", "/2"), about("b", "/4"), about("a", "/3"))
	extra.CannotJudge(finding.Nodes, "", errors.New("no answer"))
	r.add(extra)
	if diff := cmp.Diff([]finding.Finding{about("a", "/1"), about("a", "/2"), about("b", "/4"), about("a", "/3")}, r.Findings); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("the nodes could not be compared: no answer", finding.Words(r.Unjudged)); diff != "" {
		t.Error(diff)
	}
}

func TestRenewals(t *testing.T) {
	m := &Machine{
		Want: component.Machine{Certificates: []pki.Slot{
			{Name: "good", CertPath: "/good.crt", KeyPath: "/good.key"},
			{Name: "due", CertPath: "/due.crt", KeyPath: "/due.key"},
			{Name: "missing", CertPath: "/missing.crt", KeyPath: "/missing.key"},
			{Name: "other key", CertPath: "/other.crt", KeyPath: "/other.key"},
			{Name: "foreign", CertPath: "/foreign.crt", KeyPath: "/foreign.key"},
		}},
		pairs: map[string]pairVerdict{
			"due":       {reissue: []finding.Finding{{Kind: finding.Certificate, Problem: finding.Due, Found: "May", Since: "April"}}},
			"missing":   {reissue: pairIs(finding.Missing)},
			"other key": {reissue: pairIs(finding.NotWritten)},
			"foreign": {reissue: pairIs(finding.NotWritten), foreign: []finding.Finding{
				{Kind: finding.Certificate, Problem: finding.CommonName, Found: "x", Wanted: "y"},
				{Kind: finding.Certificate, Problem: finding.Expired, Found: "May"}}},
		},
		Changes: []host.Change{
			change(finding.File, "/missing.crt"), change(finding.File, "/other.key"), change(finding.File, "/foreign.crt"),
		},
	}
	// The finding about the certificate's file already says that it differs.
	want := `certificate /due.crt: expires on May and is due for renewal since April; certificate /foreign.crt: common name is "x", wanted "y", expired on May`
	if d := cmp.Diff(want, finding.Words(m.renewals())); d != "" {
		t.Error(d)
	}
}

// TestWithAdvice checks that an error of package host gets the command to run next.
func TestWithAdvice(t *testing.T) {
	m := fleet.Target{Host: remote.Host{Name: "worker-0", Address: "192.0.2.7", User: "admin"}}
	for _, tt := range []struct {
		failed host.ApplyError
		next   string
	}{
		{host.ApplyError{Step: host.Step{Kind: host.StepDownload, Target: "kubelet 1.36.4", URL: "https://dl.example/kubelet"}, Err: errors.New("curl: (7) refused")},
			"curl --verbose --head https://dl.example/kubelet"},
		{host.ApplyError{Step: host.Step{Kind: host.StepPackages, Target: "haproxy nftables", URL: "http://deb.example/InRelease"}, Err: errors.New("503  Service Unavailable")},
			"curl --verbose --head http://deb.example/InRelease"},
		{host.ApplyError{Step: host.Step{Kind: host.StepPackages, Target: "haproxy nftables"}, Err: errors.New("Unable to locate package haproxy")},
			"sudo apt-get install haproxy nftables"},
		{host.ApplyError{Step: host.Step{Kind: host.StepWrite, Target: "/etc/x"}, Err: errors.New("not written"), Room: &host.Room{}}, "df -h"},
		{host.ApplyError{Step: host.Step{Kind: host.StepCloudInit}, Unit: "cloud-config.service", Err: errors.New("cloud-init is still in its stage config")},
			"sudo journalctl --unit cloud-config.service --lines 50 --no-pager"},
	} {
		got := withAdvice(m, &tt.failed).Error()
		if want := "\nnext: ssh admin@192.0.2.7 " + tt.next; !strings.HasSuffix(got, want) {
			t.Errorf("%s\nwant it to end with%s", got, want)
		}
	}
}

// TestRoleIsValue checks that nil, or a prior role of another kind, is an error before any machine
// is reached.
func TestRoleIsValue(t *testing.T) {
	e := &Engine{Fleet: &fleet.Fleet{}}
	var none *claimedRole
	for _, tt := range []struct {
		want, prior Role
		error       string
	}{
		{nil, nil, "a role is a value, not a <nil>"},
		{none, nil, "a role is a value, not a *rollout.claimedRole"},
		{claimedRole{}, none, "a rollout.claimedRole does not follow a *rollout.claimedRole"},
		{claimedRole{}, observedRole{}, "a rollout.claimedRole does not follow a rollout.observedRole"},
	} {
		if _, err := e.Apply(t.Context(), tt.want, tt.prior, Record{}); err == nil || err.Error() != tt.error {
			t.Errorf("%T after %T: %v, wanted %q", tt.want, tt.prior, err, tt.error)
		}
	}
	for _, role := range []Role{nil, none, &claimedRole{}} {
		_, filed := Files(role)
		_, _, inspected := e.Inspect(t.Context(), role)
		_, recalled := ReadRole(role, component.Node{}, component.Found{})
		for call, err := range map[string]error{"Files": filed, "Inspect": inspected, "Recall": recalled} {
			if err == nil || err.Error() != fmt.Sprintf("a role is a value, not a %T", role) {
				t.Errorf("%s of a %T: %v", call, role, err)
			}
		}
	}
	if _, err := ReadRole(&claimedRole{}, component.Node{}, component.Found{}); err == nil {
		t.Error("a pointer was completed")
	}
}

// TestSkipped: a machine that is off on purpose is not among those that were skipped.
func TestSkipped(t *testing.T) {
	gone := &remote.UnreachableError{Err: errors.New("no route to host")}
	machine := func(name string, off bool) *Machine {
		return &Machine{Gone: gone, Machine: &fleet.Machine{Target: fleet.Target{Host: remote.Host{Off: off}, Node: component.Node{Name: name}}}}
	}
	o := Operation{Machines: []*Machine{machine("worker-0", true)}}
	if err := o.Skipped(); err != nil {
		t.Errorf("skipped %v", err)
	}
	o.Machines = append(o.Machines, machine("worker-1", false))
	var skipped *fleet.SkippedError
	if err := o.Skipped(); !errors.As(err, &skipped) || len(skipped.Machines) != 1 || skipped.Machines["worker-1"] == nil {
		t.Errorf("skipped %v", err)
	}
}
