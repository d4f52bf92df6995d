package host

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// TestStepWords checks the words of every step.
func TestStepWords(t *testing.T) {
	words := map[StepKind]string{
		StepPrepare: "prepare x", StepReceive: "receive the upload", StepLock: "wait for another apply on the machine",
		StepDownload: "download x from https://y", StepCloudInit: "wait for x", StepPackages: "install packages x",
		StepModule: "load kernel module x", StepSysctl: "set sysctl x", StepCreateDirectory: "create directory x",
		StepMoveAside: "move x aside", StepAttributes: "set mode and owner of x", StepUnpack: "unpack x", StepInstall: "install x",
		StepWrite: "write x", StepDrop: "remove x", StepEnable: "enable x", StepDisable: "disable x",
		StepReload: "systemctl daemon-reload", StepStartUnit: "start x", StepStopUnit: "stop x", StepRestartUnit: "restart x",
		StepReloadUnit: "reload x", StepVerify: "verify x", StepRemove: "remove x",
		StepRetire: "delete the files of x", StepCleanUp: "clean up after x",
	}
	for kind, want := range words {
		if got := (Step{Kind: kind, Target: "x", URL: "https://y"}).String(); got != want {
			t.Errorf("%q, wanted %q", got, want)
		}
	}
	if got := (Step{Kind: StepRestartUnit}).String(); got != "restart" {
		t.Errorf("%q, wanted restart", got)
	}
	known := func(name string) bool { _, ok := words[StepKind(name)]; return ok }
	calls := regexp.MustCompile(`\b(?:die|fail) ([a-z-]+) `).FindAllStringSubmatch(applyFunctions+downloadFunctions+packageFunctions+bootFunctions, -1)
	if len(calls) < 20 {
		t.Errorf("the scripts end in %d ways only", len(calls))
	}
	for _, c := range calls {
		if !slices.Contains([]string{"step", "for"}, c[1]) && !known(c[1]) { // "step" and "for" are from the comments on die and fail
			t.Errorf("a script ends at a step %q that has no words", c[1])
		}
	}
}

// TestErrorWords checks the text of errors.
func TestErrorWords(t *testing.T) {
	want := desired.State{Binaries: []desired.Binary{{Name: "kubelet", Version: "v1", URL: "https://x/kubelet", SHA256: digestA}}}
	taken := finding.Finding{Kind: finding.Port, Target: "80", Problem: finding.Taken, Found: "nc", Process: "7", Unit: "a.service"}
	for _, tt := range []struct {
		frame, words, url string
		full              bool
		causes            []finding.Finding
		journal           string
	}{
		{"restart\n\na.service\n\nJob for a.service failed.\nSee \"systemctl status a.service\" for details.", "machine m: restart a.service: Job for a.service failed.\n" +
			"port 80 is taken by nc (process 7 of a.service): end it, then apply again\nlast lines of the journal of a.service:\none\ntwo", "", false,
			[]finding.Finding{taken}, "one\ntwo\n"},
		{"download\n" + digestA + "\n\n10 1024 5 tmpfs /var/my cache\ncurl: (23) Failure writing output", "machine m: download kubelet v1 from https://x/kubelet: " +
			"curl: (23) Failure writing output; 10 of 1024 KiB and 5 inodes are free on /var/my cache (tmpfs)", "https://x/kubelet", true, nil, ""},
		{"download\n" + digestA + "\n\n\ncurl: (7) Failed to connect", "machine m: download kubelet v1 from https://x/kubelet: curl: (7) Failed to connect",
			"https://x/kubelet", false, nil, ""},
		{"packages\na b\n\n\nFailed to fetch http://deb/a.deb  503  Service Unavailable", "machine m: install packages a b: Failed to fetch http://deb/a.deb  503  Service Unavailable",
			"http://deb/a.deb", false, nil, ""},
		{"packages\na b\n\n\nFailed to fetch mirror+file:/etc/apt/mirrors/debian.list  none", "machine m: install packages a b: Failed to fetch mirror+file:/etc/apt/mirrors/debian.list  none",
			"", false, nil, ""},
		{"cloud-init\n\ncloud-final.service\n\nstill there", "machine m: wait for cloud-final.service: still there", "", false, nil, ""},
		{"write\n/etc/x\n\n- - - tmpfs /\nNo space left on device", "machine m: write /etc/x: No space left on device; - of - KiB and - inodes are free on / (tmpfs)", "", true, nil, ""},
		{"download\n" + digestA + "\n\n- - - overlay /var\ncurl: (23) Failure writing output", "machine m: download kubelet v1 from https://x/kubelet: " +
			"curl: (23) Failure writing output; - of - KiB and - inodes are free on /var (overlay)", "https://x/kubelet", true, nil, ""},
		{"download\n" + digestA + "\n\n  -  \ncurl: (23) Failure writing output", "machine m: download kubelet v1 from https://x/kubelet: " +
			"curl: (23) Failure writing output; the free space is unknown", "https://x/kubelet", true, nil, ""},
		{"daemon-reload\n\n\n\n", "machine m: systemctl daemon-reload: failed", "", false, nil, ""},
	} {
		e := stepError("m", tt.frame, want)
		e.Causes, e.Journal = tt.causes, tt.journal
		if e.Error() != tt.words || e.Step.URL != tt.url || e.Full() != tt.full {
			t.Errorf("%q, URL %q, full %t\nwanted %q", e.Error(), e.Step.URL, e.Full(), tt.words)
		}
	}
	unmet := &ApplyError{Machine: "m", Step: Step{Kind: StepVerify}, Unit: "a.service",
		Err: &UnmetError{Left: []finding.Finding{{Kind: finding.File, Target: "/f", Problem: finding.Missing}}}}
	if got := unmet.Error(); got != "machine m: verify a.service: the machine is still not as wanted: file /f: missing" {
		t.Errorf("%q", got)
	}
	var left *UnmetError
	if !errors.As(error(unmet), &left) || len(left.Left) != 1 {
		t.Error("the error does not list what is left as data")
	}
}

func TestSaid(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{nil, ""},
		{errors.New("no space left on device"), ""},
		{fmt.Errorf("apply: %w", &remote.ExitError{Machine: "m", Code: 1, Stderr: "mv: no"}), "mv: no"},
		{fmt.Errorf("a: %w", &ApplyError{Err: &UnmetError{}, Said: "mv: no"}), "mv: no"},
	} {
		if got := Said(tt.err); got != tt.want {
			t.Errorf("%v: %q, wanted %q", tt.err, got, tt.want)
		}
	}
}

// TestCauses asks this machine which process holds a port, and parses the disk report of another
// machine.
func TestCauses(t *testing.T) {
	m := newLocalMachine(t)
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	port := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	found := Causes(patience.With(t.Context(), 60), m, "listen tcp 127.0.0.1:"+port+": bind: address already in use")
	if len(found) != 1 || found[0].Kind != finding.Port || found[0].Target != port || found[0].Process != strconv.Itoa(os.Getpid()) {
		t.Errorf("found %+v", found)
	}
	if found := Causes(t.Context(), m, "all is well"); found != nil {
		t.Errorf("asked for nothing, found %+v", found)
	}
	got := parseCauses("m", "nonsense\nfull\t/var\t/dev/xvdb\t12\t1024\nport\t80\tmy nc\t7\ta.service\n")
	want := []finding.Finding{
		{Subject: "m", Kind: finding.FileSystem, Target: "/var", Device: "/dev/xvdb", Problem: finding.Full, Found: "12", Size: "1024"},
		{Subject: "m", Kind: finding.Port, Target: "80", Problem: finding.Taken, Found: "my nc", Process: "7", Unit: "a.service"},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// TestSpace checks that a step that lacks disk space reports how much is free, and that a failed
// download leaves no partial file.
func TestSpace(t *testing.T) {
	for _, tt := range []struct{ name, ends, words string }{
		{"a file", `die write /etc/x/y '' 'mv: No space left on device'`,
			"machine m: write /etc/x/y: mv: No space left on device; 10 of 1024 KiB and 5 inodes are free on /etc a (tmpfs)"},
		{"a package", `die packages web '' 'E: write - write (28: No space left on device)'`,
			"machine m: install packages web: E: write - write (28: No space left on device); 10 of 1024 KiB and 5 inodes are free on /tmp a (tmpfs)"},
		{"a download", `download ` + digestA + ` https://x; downloaded ` + digestA,
			"machine m: download ? from: curl: (23) Failure writing; 10 of 1024 KiB and 5 inodes are free on /tmp a (tmpfs)"},
		{"a download that ends without a result", `downloaded ` + digestA, "machine m: download ? from: the download ended without a result"},
		{"something else", `die write /etc/x/y '' 'Permission denied'`, "machine m: write /etc/x/y: Permission denied"},
	} {
		script := "set -u\nnewline='\n' limit=9 lib=/none\n" + observeFunctions + applyFunctions + downloadFunctions + `
stage=$1 run=$1 cache=/tmp/none deadline=0
mkdir "$run/downloads"
df() {
	[ "$2" = -k ] && at=$4 && case $at in /etc) at='/etc a' ;; *) at='/tmp a' ;; esac
	case $2 in
	-k) printf 'head\ntmpfs 1024 1014 10 99%% %s\n' "$at" ;;
	-i) printf 'head\ntmpfs 9 4 5 1%% x\n' ;;
	esac
}
curl() { echo 'curl: (23) Failure writing'; return 23; }
` + tt.ends
		out, _ := exec.CommandContext(t.Context(), "sh", "-c", script, "sh", t.TempDir()).Output()
		_, frame, _ := strings.Cut(strings.TrimSuffix(string(out), "\x00"), "failed ")
		if got := strings.ReplaceAll(stepError("m", frame, desired.State{}).Error(), digestA, "?"); got != tt.words {
			t.Errorf("%s: %q, wanted %q", tt.name, got, tt.words)
		}
	}
}
