package snapshot_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/snapshot"
)

func description() snapshot.Description {
	return snapshot.Description{Format: snapshot.Format, Name: "20260102T030405Z-77", Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Cluster: "demo",
		EtcdClusterID: "cdf818194e3a8c32", EtcdVersion: "3.6.16", Member: "controller-0", Revision: 77, Keys: 80, Hash: "d1a3", Size: 20512,
		SHA256: strings.Repeat("0a", 32), EncryptionKeys: []snapshot.EncryptionKey{{Name: "encryption.key", SHA256: strings.Repeat("0b", 32)}}}
}

func TestParse(t *testing.T) {
	text := func(change func(*snapshot.Description)) []byte {
		d := description()
		change(&d)
		out, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	got, err := snapshot.Parse(text(func(*snapshot.Description) {}))
	if err != nil || got.Revision != 77 || !got.Time.Equal(description().Time) || len(got.EncryptionKeys) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	for want, bad := range map[string][]byte{
		"unexpected end":               nil,
		"of form 1, but of form 2":     text(func(d *snapshot.Description) { d.Format = 2 }),
		`"newest" is not the name`:     text(func(d *snapshot.Description) { d.Name = "newest" }),
		`"20261302T030405Z-77" is not`: text(func(d *snapshot.Description) { d.Name = "20261302T030405Z-77" }),
		"does not belong to the time":  text(func(d *snapshot.Description) { d.Revision = 78 }),
		"lacks the size":               text(func(d *snapshot.Description) { d.SHA256 = "0a" }),
		"cannot unmarshal":             []byte(`{"format": "1"}`),
	} {
		if _, err := snapshot.Parse(bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", bad, err, want)
		}
	}
}

// TestDescribed: Go and the machines' shell agree on what counts. The shell also leaves out
// snapshots from the future.
func TestDescribed(t *testing.T) {
	keys := []string{
		"a/20260103T000000Z-9.db", "a/20260103T000000Z-9.json",
		"a/20260102T000000Z-7.db", "a/20260102T000000Z-7.json",
		"a/20260104T000000Z-11.db",                                   // not described: it was interrupted
		"a/20260105T000000Z-12.json",                                 // its data are gone
		"a/b/20260106T000000Z-13.db", "a/b/20260106T000000Z-13.json", // of another prefix
		"a/notes.json", "b/20260107T000000Z-14.db", "b/20260107T000000Z-14.json",
	}
	want := []string{"20260102T000000Z-7", "20260103T000000Z-9"}
	if got := snapshot.Described("a/", keys); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	keys = append(keys, "a/29990102T000000Z-15.db", "a/29990102T000000Z-15.json")
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte(strings.Join(keys, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "sh", "-c", snapshot.S3Functions+"\nsnapshot_names a/ "+file).CombinedOutput()
	if got := strings.Fields(string(out)); err != nil || !slices.Equal(got, want) {
		t.Errorf("the shell says %q, %v, want %v", out, err, want)
	}
}

func TestTime(t *testing.T) {
	if at, err := snapshot.Time("20260102T030405Z-77"); err != nil || !at.Equal(description().Time) {
		t.Errorf("%v, %v", at, err)
	}
	if _, err := snapshot.Time("20260102T030405Z"); err == nil {
		t.Error("a name without a revision is accepted")
	}
}

// TestEndpoint: one region of each partition.
func TestEndpoint(t *testing.T) {
	for region, want := range map[string]string{
		"eu-central-1":  "https://s3.eu-central-1.amazonaws.com",
		"us-gov-west-1": "https://s3.us-gov-west-1.amazonaws.com",
		"cn-north-1":    "https://s3.cn-north-1.amazonaws.com.cn",
	} {
		if got := snapshot.Endpoint(region); got != want {
			t.Errorf("%s: %s", region, got)
		}
	}
}
