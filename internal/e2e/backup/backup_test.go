package backup_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/snapshot"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

const program = "/usr/local/sbin/etcd-backup"

// TestBackup runs steps that depend on one another.
func TestBackup(t *testing.T) {
	w := newWorld(t)
	step := harness.Steps(t)
	step("the first snapshot", w.testFirst)
	step("another member stands in", w.testStandIn)
	step("what does not count", w.testUnsound)
	step("S3 refuses", w.testAway)
	step("fewer are kept", w.testKept)
	step("the action", w.testAction)
	step("before a rotation", w.testRotation)
	step("before a member is removed", w.testReplace)
	step("all data are lost", w.testAllLost)
	step("one member has data", w.testOneLeft)
	step("another bucket", w.testBucket)
	step("destroy", w.testDestroy)
}

// testFirst applies. The apply has taken a snapshot, and its attributes are what S3 has.
func (w *world) testFirst(t *testing.T) {
	w.Apply(t)
	w.NoChanges(t)
	n := w.newest(t)
	names := w.described(t, bucket)
	if !slices.Contains(names, n.Name) || n.Member != "controller-0" || n.Size < 1 || !slices.Equal(n.EncryptionKeys, []string{"encryption.key"}) {
		t.Errorf("the newest snapshot is %+v, the bucket has %q", n, names)
	}
	sum := sha256.Sum256(w.get(t, prefix+n.Name+snapshot.DataSuffix))
	d := w.description(t, n.Name)
	if got := hex.EncodeToString(sum[:]); got != n.SHA256 || d.SHA256 != got || d.Hash != n.Hash || d.EtcdVersion != "3.6.16" || d.Cluster != "demo" {
		t.Errorf("the object has SHA-256 %s, the attribute %+v, the description %+v", got, n, d)
	}
	out, err := w.console(t, "controller-1", harness.Etcdctl+"endpoint status -w fields | grep ClusterID")
	if err != nil {
		t.Fatal(err)
	}
	var id uint64
	if _, err := fmt.Sscanf(out, `"ClusterID" : %d`, &id); err != nil || fmt.Sprintf("%x", id) != d.EtcdClusterID {
		t.Errorf("etcd's cluster is %q, the description says %s", out, d.EtcdClusterID)
	}
}

// testStandIn stops the first member's timer. Another member takes the next snapshots, with what has
// been written since, and the plan says what is wrong.
func (w *world) testStandIn(t *testing.T) {
	const keys = 20
	if _, err := w.console(t, "controller-0", fmt.Sprintf("systemctl stop etcd-backup.timer; for i in $(seq %d); do %sput /test/$i v >/dev/null; done", keys, harness.Etcdctl)); err != nil {
		t.Fatal(err)
	}
	known := w.described(t, bucket)
	w.arrives(t, 150*time.Second, known, "a snapshot by controller-1", func(d snapshot.Description) bool {
		return d.Member == "controller-1" && d.Keys == keys && d.Revision == keys+1
	})
	if text := w.drift(t); !strings.Contains(text, "etcd-backup.timer: stopped, wanted running") {
		t.Errorf("the plan says\n%s", text)
	}
	w.Apply(t)
	w.NoChanges(t)
}

// testUnsound lets the disk of a member lose the second half of a snapshot while it is written. It is
// refused, and no snapshot comes of it. So is a second one for which there is no room.
func (w *world) testUnsound(t *testing.T) {
	const half = `mkdir -p /run/half && cat >/run/half/etcdctl <<'X'
#!/bin/sh
/usr/local/bin/etcdctl "$@" || exit
for file; do :; done
case "$*" in *"snapshot save"*) truncate -s 12000 "$file" ;; esac
X
chmod 755 /run/half/etcdctl
PATH=/run/half:$PATH `
	// A run that the timer has begun would make a snapshot after the failed one.
	out, err := w.console(t, "controller-0", `systemctl stop etcd-backup.timer; timeout 60 sh -c 'while [ "$(systemctl is-active etcd-backup.service)" = activating ]; do sleep 0.2; done'`)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	count := len(w.keys(t, bucket))
	out, err = w.console(t, "controller-0", half+program+" take")
	if err == nil || !strings.Contains(out, "reading the snapshot: ") || strings.Contains(out, ".go:") {
		t.Errorf("half a snapshot: %v\n%s", err, out)
	}
	if text := w.drift(t); !strings.Contains(text, "the last run of etcd-backup failed: ") {
		t.Errorf("the plan says\n%s", text)
	}
	out, err = w.console(t, "controller-0", "mount -t tmpfs -o size=8m none /var/lib/etcd-backup && { "+program+" take; code=$?; umount /var/lib/etcd-backup; exit $code; }")
	if err == nil || !strings.Contains(out, "no room for a snapshot: /var/lib/etcd-backup has ") {
		t.Errorf("without room: %v\n%s", err, out)
	}
	for _, key := range w.keys(t, bucket)[count:] {
		if name, ok := snapshot.Of(prefix, key); ok && w.description(t, name).Member == "controller-0" {
			t.Errorf("the bucket has %s of controller-0", key)
		}
	}
	w.Apply(t)
	w.NoChanges(t)
}

// testAway takes from the role the right to write. Snapshots wait on the member, the plan says why,
// an apply fails with the reason, and once S3 takes them again they are sent.
func (w *world) testAway(t *testing.T) {
	readonly := filepath.Join(t.TempDir(), "readonly.json")
	policy, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": []any{
		map[string]any{"Effect": "Allow", "Action": "s3:GetObject", "Resource": "arn:aws:s3:::" + bucket + "/*"},
		map[string]any{"Effect": "Allow", "Action": "s3:ListBucket", "Resource": "arn:aws:s3:::" + bucket},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(readonly, policy, 0o600); err != nil {
		t.Fatal(err)
	}
	suite.MachineRole(t, harness.SnapshotProfile, "demo", readonly)
	out, err := w.console(t, "controller-0", program+" take")
	if err == nil || !strings.Contains(out, "S3 answers 403 AccessDenied") {
		t.Errorf("without the right to write: %v\n%s", err, out)
	}
	waiting, err := w.console(t, "controller-0", "ls /var/lib/etcd-backup/spool")
	if err != nil || strings.Count(waiting, ".db") < 1 {
		t.Fatalf("the spool has %q, %v", waiting, err)
	}
	name, _, _ := strings.Cut(waiting, ".db")
	if text := w.drift(t); !strings.Contains(text, "the last run of etcd-backup failed") || !strings.Contains(text, "AccessDenied") {
		t.Errorf("the plan says\n%s", text)
	}
	_, err = w.WS.Apply(t.Context())
	harness.Refused(t, err, "take a snapshot of etcd", "S3 answers 403 AccessDenied", "sudo /usr/local/sbin/etcd-backup take")
	suite.MachineRole(t, harness.SnapshotProfile, "demo", suite.Policy("etcd-snapshots"))
	w.everywhere(t, "systemctl start etcd-backup.service", "controller-0") // as the timer does within a minute
	if names := w.described(t, bucket); !slices.Contains(names, name) {
		t.Errorf("the bucket has %q, not %s", names, name)
	}
	w.Apply(t)
	w.NoChanges(t)
}

// testKept keeps two snapshots. The older ones are deleted, with their data. So is one that is too old.
func (w *world) testKept(t *testing.T) {
	if names := w.described(t, bucket); len(names) < 4 {
		t.Fatalf("the bucket has %q only", names)
	}
	w.set(t, map[string]any{"keep": 2})
	w.Apply(t)
	if keys := w.keys(t, bucket); len(keys) < 4 || len(keys) > 6 { // the timer may just have written one more
		t.Errorf("the bucket has %q", keys)
	}
	names := w.described(t, bucket)
	newest := names[len(names)-1]
	old := time.Now().Add(-100*24*time.Hour).UTC().Format("20060102T150405Z") + "-7" // 90 days are the default
	w.copy(t, newest+snapshot.DataSuffix, old+snapshot.DataSuffix, func(b []byte) []byte { return b })
	w.describe(t, newest, old, nil)
	w.set(t, map[string]any{"keep": nil})
	w.Apply(t)
	if names := w.described(t, bucket); len(names) < 2 || slices.Contains(names, old) {
		t.Errorf("the bucket has %q", names)
	}
}

// testRotation rotates etcd's authority. A snapshot is taken first, on a member that still has the
// old certificates.
func (w *world) testRotation(t *testing.T) {
	harness.Long(t) // package lifecycle sees the one before an upgrade
	w.set(t, map[string]any{"etcd_ca": []int{1, 2}})
	w.Apply(t)
	w.NoChanges(t)
	if !suite.Logged(t, "controller-0", "took a snapshot before the rotation of keys") {
		t.Error("no snapshot was taken before the rotation")
	}
}

// testReplace replaces a machine, so its member leaves the cluster.
func (w *world) testReplace(t *testing.T) {
	w.Apply(t, "-replace=k8s_machine.controller[2]")
	w.NoChanges(t)
	if !suite.Logged(t, "controller-0", "took a snapshot before the removal of etcd member controller-2") {
		t.Error("no snapshot was taken before the removal of the member")
	}
	if out, err := w.console(t, "controller-2", "systemctl is-active etcd-backup.timer"); err != nil {
		t.Errorf("the new machine: %s, %v", out, err)
	}
}

// testBucket names a bucket to which the role may not write: the apply fails with the reason. With
// the right it takes a snapshot there at once, and leaves the others.
func (w *world) testBucket(t *testing.T) {
	old := w.described(t, bucket)
	w.set(t, map[string]any{"bucket": "example-elsewhere"})
	_, err := w.WS.Apply(t.Context())
	harness.Refused(t, err, "S3 answers 403 AccessDenied")
	if text := w.drift(t); strings.Contains(text, "no snapshot of etcd") {
		t.Errorf("the old bucket has snapshots, and the plan says\n%s", text)
	}
	policy, err := os.ReadFile(suite.Policy("etcd-snapshots"))
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := filepath.Join(t.TempDir(), "elsewhere.json")
	if err := os.WriteFile(elsewhere, []byte(strings.ReplaceAll(string(policy), bucket, "example-elsewhere")), 0o600); err != nil {
		t.Fatal(err)
	}
	suite.MachineRole(t, harness.SnapshotProfile, "demo", elsewhere)
	w.Apply(t)
	w.NoChanges(t)
	if names := w.described(t, "example-elsewhere"); !slices.Contains(names, w.newest(t).Name) {
		t.Errorf("the new bucket has %q, the newest is %+v", names, w.newest(t))
	}
	if now := w.described(t, bucket); !slices.Equal(now, old) {
		t.Errorf("the old bucket had %q, and has %q", old, now)
	}
}

// testDestroy destroys the cluster after it has lost its quorum: the plan warns. The snapshots stay.
func (w *world) testDestroy(t *testing.T) {
	var ids []string
	for _, m := range w.Machines(t)[1:] {
		ids = append(ids, m.ID)
	}
	if _, err := ec2.NewFromConfig(suite.AWS()).TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: ids}); err != nil || len(ids) != 2 {
		t.Fatal(ids, err)
	}
	if text := w.drift(t); !strings.Contains(text, "Warning: etcd has lost its quorum") || !strings.Contains(harness.Flat(text), "set restore_from") {
		t.Errorf("the plan says\n%s", text)
	}
	w.Destroy(t)
	if names := w.described(t, bucket); len(names) == 0 {
		t.Error("the snapshots are gone")
	}
}
