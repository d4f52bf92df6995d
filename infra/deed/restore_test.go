package deed

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// restoringOn returns a runner whose programs are functions of the shell, and what
// the last deed said.
func restoringOn(t *testing.T, functions string) (Runner, *string) {
	t.Helper()
	said, lock := new(string), filepath.Join(t.TempDir(), "lock")
	return runnerFunc(func(ctx context.Context, cmd remote.Command) (remote.Output, error) {
		text := strings.ReplaceAll(cmd.Script, "/run/etcd-restore.lock", lock)
		out, err := exec.CommandContext(ctx, "sh", "-c", functions+"\n"+text).CombinedOutput()
		*said = strings.TrimSpace(string(out))
		return remote.Output{}, err
	}), said
}

// fakes stand for systemd, which knows no active unit, S3 and etcdutl.
const fakes = `systemctl() { [ "$1" != is-active ]; }
etcdutl() { [ "$2" = status ] || { mkdir -p "$5/member/snap" && cp "$3" "$5/member/snap/db"; }; }
s3_get() { printf data >"$2"; }`

// TestRestoreDeeds makes data, puts them in place, notes the end, and puts them aside, each also a
// second time.
func TestRestoreDeeds(t *testing.T) {
	dir := t.TempDir()
	r, said := restoringOn(t, fakes)
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("member/old", "old")
	const sum = "3a6eb0790f39ac87c94f3856b2dd2c5d110e6811602261a9a923d3bb23adc8b7" // of "data"
	token := "t"
	stage := func(size int64, sum string) error {
		return MakeFromSnapshot(t.Context(), r, Location{Endpoint: "https://s3", Region: "r", Bucket: "b", Prefix: "p/"}, "snap", size, sum,
			NewMember{DataDir: dir, Mark: "m", Name: "a", PeerURL: "https://a:2380", InitialCluster: "a=https://a:2380", Token: token, AddRevisions: 1})
	}
	for want, try := range map[string]func() error{
		"s3://b/p/snap.db is damaged: it has 4 bytes, and its description says 5":              func() error { return stage(5, sum) },
		"s3://b/p/snap.db is damaged: its SHA-256 is " + sum + ", and its description says 00": func() error { return stage(4, "00") },
		"there are no restored data in " + dir + "/restore: apply again":                       func() error { return UseRestored(t.Context(), r, "etcd.service", dir, "m", "snap") },
		"bytes free, and 8796227239936 are needed":                                             func() error { return stage(1<<42, sum) },
	} {
		if err := try(); err == nil || !strings.Contains(*said, want) {
			t.Errorf("%v: %q, wanted %q", err, *said, want)
		}
		if left, _ := filepath.Glob(dir + "/*"); len(left) != 1 {
			t.Errorf("%s: left %q", want, left)
		}
	}
	aside := regexp.MustCompile(`replaced-\d{8}T\d{6}Z-\w{4}/`)
	for _, step := range []struct {
		name string
		do   func() error
		want string // files
	}{
		{"make data", func() error { return stage(4, sum) },
			"member/old restore/member/restored-from restore/member/restored-snapshot restore/member/restored-token restore/member/snap/db"},
		{"make them for another cluster", func() error { token = "t2"; return stage(4, sum) },
			"member/old restore/member/restored-from restore/member/restored-snapshot restore/member/restored-token restore/member/snap/db"},
		{"put them in place", func() error { return UseRestored(t.Context(), r, "etcd.service", dir, "m", "snap") },
			"member/restored-from member/restored-snapshot member/restored-token member/snap/db replaced-<time>/member/old"},
		{"note the end", func() error { return EndRestore(t.Context(), r, dir, "m") },
			"member/restored-done member/restored-snapshot member/restored-token member/snap/db replaced-<time>/member/old"},
		{"forget it", func() error { return EndRestore(t.Context(), r, dir, "") },
			"member/snap/db replaced-<time>/member/old"},
		{"put them aside", func() error { return SetAside(t.Context(), r, "etcd.service", dir) },
			"replaced-<time>/member/old replaced-<time>/member/snap/db"},
	} {
		for range 2 {
			if err := step.do(); err != nil {
				t.Fatalf("%s: %v: %s", step.name, err, *said)
			}
			var files []string
			err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
				if err == nil && !d.IsDir() && !strings.Contains(path, "/work/") {
					files = append(files, aside.ReplaceAllString(strings.TrimPrefix(path, dir+"/"), "replaced-<time>/"))
				}
				return err
			})
			slices.Sort(files)
			if made, _ := os.ReadFile(dir + "/restore/member/restored-token"); len(made) > 0 && strings.TrimSpace(string(made)) != token {
				t.Errorf("%s: the data belong to cluster %q, wanted %q", step.name, made, token)
			}
			if got := strings.Join(files, " "); err != nil || got != step.want {
				t.Errorf("%s: %q, %v, wanted %q", step.name, got, err, step.want)
			}
		}
	}
}

// TestUnitGoesOn: the data of a unit that does not stop are left alone.
func TestUnitGoesOn(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(dir+"/member", 0o700); err != nil {
		t.Fatal(err)
	}
	r, said := restoringOn(t, "systemctl() { :; }")
	if err := SetAside(t.Context(), r, "etcd.service", dir); err == nil || *said != "etcd.service does not stop" {
		t.Errorf("%v: %q", err, *said)
	}
	if _, err := os.Stat(dir + "/member"); err != nil {
		t.Error(err)
	}
}
