package rollout

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/google/go-cmp/cmp"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
)

const (
	apiServer     = "/usr/local/bin/kube-apiserver"
	apiServerUnit = "kube-apiserver.service"
	downloads     = "/var/cache/k8s-from-scratch/"
)

// controllerState is a state with one real unit, and one of another program.
func controllerState() desired.State {
	return desired.State{
		Files: []desired.File{
			{Path: "/etc/systemd/system/" + apiServerUnit, Content: []byte("[Unit]\nAfter=network-online.target\n\n[Service]\nType=notify\nEnvironmentFile=/etc/x.env\n" +
				"ExecStart=" + apiServer + " \\\n  \"--a=b c\" \\\n  --z=1\nRestart=always\n\n[Install]\nWantedBy=multi-user.target\n")},
			{Path: "/etc/systemd/system/nft.service", Content: []byte("[Service]\nExecStart=/usr/sbin/nft -f /etc/x.nft\n")},
		},
		Binaries: []desired.Binary{{SHA256: "abc", Installs: []desired.Install{{Path: apiServer}}}},
		Units:    []desired.Unit{{Name: apiServerUnit, Active: true}, {Name: "nft.service", Active: true}},
	}
}

// TestTrial checks how a real unit becomes one that checks its configuration and exits.
func TestTrial(t *testing.T) {
	unitChange := change(finding.File, "/etc/systemd/system/"+apiServerUnit, apiServerUnit)
	programChange := change(finding.Binary, apiServer, apiServerUnit)
	for _, tt := range []struct {
		name    string
		changes []host.Change
		program string // empty: nothing to rehearse
	}{
		{"flag", []host.Change{unitChange}, apiServer},
		{"flag and program", []host.Change{unitChange, programChange}, downloads + "abc"},
		{"program", []host.Change{programChange}, downloads + "abc"},
		{"configuration file", []host.Change{change(finding.File, "/etc/audit", apiServerUnit)}, apiServer},
		{"configuration file that restarts nothing", []host.Change{change(finding.File, "/etc/audit")}, ""},
		{"stopped", []host.Change{change(finding.Unit, apiServerUnit, apiServerUnit)}, ""},
		{"another unit", []host.Change{change(finding.File, "/x", "x.service")}, ""},
	} {
		got, err := newTrial(controllerState(), tt.changes, apiServerUnit)
		if err != nil {
			t.Fatal(err)
		}
		if tt.program == "" {
			if got != nil {
				t.Errorf("%s: is rehearsed", tt.name)
			}
			continue
		}
		if got == nil || got.Program != tt.program {
			t.Errorf("%s: %+v, wanted %s to be rehearsed", tt.name, got, tt.program)
			continue
		}
		file, err := io.ReadAll(unit.Serialize(got.Options))
		if err != nil {
			t.Fatal(err)
		}
		args := component.RehearsalArgs([]string{apiServer})[0]
		want := "[Service]\nEnvironmentFile=/etc/x.env\n" +
			"ExecStart=" + tt.program + " \\\n  \"--a=b c\" \\\n  --z=1 " + strings.Join(args, " ") + "\n"
		if string(file) != want || got.Unit != apiServerUnit || got.Archive != "" {
			t.Errorf("%s: %+v:\n%s\nwanted\n%s", tt.name, got, file, want)
		}
	}
	archived := controllerState()
	archived.Binaries[0].Installs[0].Member = "in/archive"
	if got, err := newTrial(archived, []host.Change{unitChange, programChange}, apiServerUnit); err != nil {
		t.Error(err)
	} else if got.Program != downloads+apiServerUnit+".unpacked" || got.Archive != downloads+"abc" || got.Member != "in/archive" {
		t.Errorf("a program in an archive: %+v", got)
	}
	if got, err := newTrial(controllerState(), []host.Change{change(finding.File, "/etc/x.nft", "nft.service")}, "nft.service"); err != nil || got != nil {
		t.Errorf("a program that cannot be asked was rehearsed: %v\n%+v", err, got)
	}
}

// TestTrials checks that a unit is rehearsed only on the first machine on which it starts or restarts.
func TestTrials(t *testing.T) {
	named := func(name string, changes ...host.Change) *Machine {
		return &Machine{Machine: &fleet.Machine{Target: fleet.Target{Node: component.Node{Name: name}}}, State: controllerState(), Changes: changes}
	}
	policy := change(finding.File, "/etc/audit", apiServerUnit)
	o := &Operation{Machines: []*Machine{named("a"), named("b", policy), named("c", policy)}}
	step := func(name string, a Action) Step { return Step{Machine: name, Action: a} }
	for _, tt := range []struct {
		plan Plan
		want map[string][]string
	}{
		{Plan{}.Parallel(step("a", ActionQuiet)).Serial(step("b", ActionRoll), step("c", ActionRoll), step("b", Action{Name: "apply to managers", Disturbs: true})), map[string][]string{"b": {apiServerUnit}}},
		{Plan{}.Serial(step("c", ActionRoll), step("b", ActionRoll)), map[string][]string{"c": {apiServerUnit}}},
		{Plan{}.Parallel(step("b", ActionQuiet), step("c", ActionQuiet)), map[string][]string{}},
		{Plan{}.Parallel(step("a", ActionInstall), step("b", ActionInstall), step("c", ActionInstall)), map[string][]string{"b": {apiServerUnit}}},
		{Plan{}.Serial(step("gone", Action{Name: "leave"})), map[string][]string{}},
	} {
		trials, err := o.trials(tt.plan)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string][]string{}
		for name, list := range trials {
			got[name] = unitsOf(list)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s%s", tt.plan, d)
		}
	}
}

// TestPackFiles checks that exactly the changed files are packed.
func TestPackFiles(t *testing.T) {
	state := desired.State{Files: []desired.File{
		{Path: "/etc/kubernetes/admission.yaml", Mode: 0o644, Content: []byte("new")},
		{Path: "/etc/kubernetes/pki/a.key", Mode: 0o600, Content: []byte("key"), Secret: true},
		{Path: "/etc/kubernetes/pki/b.key", Mode: 0o600, SHA256: "as it was", Secret: true},
		{Path: "/etc/kubernetes/unchanged", Mode: 0o644, Content: []byte("old")},
		{Path: "/opt/elsewhere", Mode: 0o644, Content: []byte("x")},
	}}
	b, err := packFiles(state, []host.Change{change(finding.File, "/etc/kubernetes/admission.yaml"), change(finding.File, "/etc/kubernetes/pki/a.key"),
		change(finding.File, "/etc/kubernetes/pki/b.key"), change(finding.File, "/opt/elsewhere")})
	if err != nil {
		t.Fatal(err)
	}
	if end := make([]byte, 1024); len(b)%512 != 0 || !bytes.HasSuffix(b, end) {
		t.Error("the archive has no end, which tar refuses")
	}
	type file struct {
		Mode    int64
		Content string
	}
	got := map[string]file{}
	r := tar.NewReader(bytes.NewReader(b))
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		got[h.Name] = file{h.Mode, string(content)}
	}
	want := map[string]file{"etc/kubernetes/admission.yaml": {0o644, "new"}, "etc/kubernetes/pki/a.key": {0o600, "key"}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestRefusalIn checks that the refusal names the unit and its program's complaint.
func TestRefusalIn(t *testing.T) {
	accepted := deed.Rehearsed{Unit: "kube-scheduler.service", Output: "I1 Wrote configuration\n"}
	for want, answers := range map[string][]deed.Rehearsed{
		"":                                    {accepted, {Unit: "kubelet.service", Code: 226}},
		"kubelet.service would not start: no": {accepted, {Unit: "kubelet.service", Code: 1, Output: "Error: no\nit is\n"}},
	} {
		if got := refusalIn(answers); got != want {
			t.Errorf("%v is read as %q, wanted %q", answers, got, want)
		}
	}
}
