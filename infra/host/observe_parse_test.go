package host

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

var (
	digestA = strings.Repeat("a", 64)
	digestB = strings.Repeat("b", 64)
)

// answer is an example of a machine's output, with noise of a login shell.
var answer = "Welcome!\n" + strings.Join([]string{
	answerStart,
	"package curl", "module br_netfilter", "sysctl net/ipv4/x 1\t2",
	"directory 41c0:0:0:root:root:4096:1700000000.000000001:7:/var/lib/app",
	"file 81a4:0:0:root:root:5:1700000000.123456789:42:/etc/a b:c",
	digestA + "  /etc/a b:c",
	"content aGVsbG8= /etc/a b:c",
	"file 81ed:0:0:root:root:9:1700000000.000000000:43:/usr/local/bin/x",
	"same /usr/local/bin/x",
	"receipt " + digestA + " " + digestB + " bin/x y",
	"units Id=a.service\nLoadState=loaded\nActiveState=active\nSubState=running\nUnitFileState=enabled\n" +
		"FragmentPath=/etc/systemd/system/a.service\nDropInPaths=/run/systemd/system/a.service.d/x.conf /etc/y.conf\n" +
		"NeedDaemonReload=yes\nResult=success\nNRestarts=3\nMainPID=12\nActiveEnterTimestampMonotonic=99\n\n" +
		"Id=b.service\nLoadState=not-found\nActiveState=inactive\nNeedDaemonReload=no\n",
	"enablement a.service disabled enabled\n",
	"dropin a.service /run/systemd/system/a.service.d/x.conf",
	"dropin a.service /run/systemd/system/a.service.d/z z.conf",
	"pending restart b.service",
	"check a.service /run/x points to /y,\n  wanted /z",
	"boot 123", "time 1700000000", answerEnd,
}, "\x00") + "\x00"

func TestParseObservation(t *testing.T) {
	rec := Record{Files: map[string]FileRecord{"/usr/local/bin/x": {SHA256: digestB}}}
	got, err := parseObservation([]byte(answer), []string{"a.service", "b.service"}, rec)
	if err != nil {
		t.Fatal(err)
	}
	want := Observation{
		Packages: map[string]bool{"curl": true}, Modules: map[string]bool{"br_netfilter": true},
		Sysctls: map[string]string{"net/ipv4/x": "1 2"},
		Directories: map[string]File{"/var/lib/app": {Type: Directory, Mode: 0o700, Owner: "root", Group: "root",
			Size: 4096, MTime: 1700000000000000001, Inode: 7}},
		Files: map[string]File{
			"/etc/a b:c": {Type: Regular, Mode: 0o644, Owner: "root", Group: "root", Size: 5, MTime: 1700000000123456789,
				Inode: 42, SHA256: digestA, content: []byte("hello"), fetched: true},
			"/usr/local/bin/x": {Type: Regular, Mode: 0o755, Owner: "root", Group: "root", Size: 9,
				MTime: 1700000000000000000, Inode: 43, SHA256: digestB},
		},
		Units: map[string]Unit{
			"a.service": {LoadState: "loaded", ActiveState: "active", SubState: "running", UnitFileState: "disabled",
				FragmentPath: "/etc/systemd/system/a.service", NeedDaemonReload: true, Result: "success", Restarts: 3, MainPID: 12, ActiveEnter: 99, CheckFailed: "/run/x points to /y, wanted /z",
				DropIns: []string{"/run/systemd/system/a.service.d/x.conf", "/etc/y.conf", "/run/systemd/system/a.service.d/z z.conf"}},
			"b.service": {LoadState: "not-found", ActiveState: "inactive", RestartPending: true},
		},
		BootID:   "123",
		receipts: map[string]map[string]string{digestA: {"bin/x y": digestB}},
	}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(Observation{}, File{}), cmpopts.IgnoreFields(Observation{}, "Time")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got.Time.Unix() != 1700000000 {
		t.Errorf("time is %s", got.Time)
	}
}

func TestParseRefusesWhatItDoesNotUnderstand(t *testing.T) {
	for name, frames := range map[string][]string{
		"nothing":        nil,
		"no end":         {answerStart},
		"unknown kind":   {answerStart, "gossip x", answerEnd},
		"short stat":     {answerStart, "file 81a4:0:0", answerEnd},
		"sum of nothing": {answerStart, digestA + "  /x", answerEnd},
		"a unit missing": {answerStart, "units ", answerEnd},
		"bad receipt":    {answerStart, "receipt x y z", answerEnd},
		"foreign unit":   {answerStart, "pending restart z.service", answerEnd},
		"foreign check":  {answerStart, "check z.service x", answerEnd},
		"no fields":      {answerStart, "file", answerEnd},
		"bad base64":     {answerStart, "file 81a4:0:0:root:root:5:1.000000000:42:/x", "content !! /x", answerEnd},
	} {
		data := strings.Join(append(frames, ""), "\x00")
		if _, err := parseObservation([]byte(data), []string{"a.service"}, Record{}); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for cut := range len(answer) - 1 {
		if _, err := parseObservation([]byte(answer[:cut]), []string{"a.service", "b.service"}, Record{}); err == nil {
			t.Fatalf("an answer cut off at %d of %d was accepted", cut, len(answer))
		}
	}
}

// FuzzParseObservation checks that no output makes the parser panic or accept a truncated answer.
func FuzzParseObservation(f *testing.F) {
	f.Add([]byte(answer))
	f.Add([]byte(answerStart + "\x00units \x00" + answerEnd + "\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		units := []string{"a.service", "b.service"}
		obs, err := parseObservation(data, units, Record{})
		if err != nil {
			return
		}
		want := desired.State{
			Files:       []desired.File{{Path: "/etc/a b:c", Content: []byte("x")}},
			Directories: []desired.Directory{{Path: "/var/lib/app"}},
			Units:       []desired.Unit{{Name: units[0], Active: true, Enabled: true}, {Name: units[1]}},
		}
		_ = Words(Diff(want, obs, Record{}))
		_ = Adopt(want, obs, Record{})
	})
}
