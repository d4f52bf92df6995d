package backup_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/snapshot"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// bump is how much a restore raises the revision.
const bump = 1_000_000_000

// revision returns etcd's revision, and the value of a key.
func (w *world) revision(t *testing.T, machine, key string) (revision int64, value string) {
	t.Helper()
	out, err := w.console(t, machine, harness.Etcdctl+"get "+key+" -w fields")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out) {
		_, _ = fmt.Sscanf(line, `"Revision" : %d`, &revision)
		_, _ = fmt.Sscanf(line, `"Value" : %q`, &value)
	}
	return revision, value
}

func (w *world) everywhere(t *testing.T, script string, machines ...string) {
	t.Helper()
	for _, m := range machines {
		if _, err := w.console(t, m, script); err != nil {
			t.Fatal(err)
		}
	}
}

// testAllLost deletes the data of all members, and starts them again: they form no empty cluster.
// Without restore_from an apply is refused. A snapshot
// that is damaged, and another cluster's, are refused before anything is touched. With the newest one
// the cluster has its keys again, under revisions above all that there were, and a further apply
// restores nothing.
func (w *world) testAllLost(t *testing.T) {
	controllers := harness.Numbered("controller", 3)
	w.everywhere(t, harness.Etcdctl+"put /kept first", "controller-0")
	w.everywhere(t, program+" take", "controller-0")
	names := w.described(t, bucket)
	newest := names[len(names)-1]
	w.everywhere(t, harness.Etcdctl+"put /kept second", "controller-0")
	before, _ := w.revision(t, "controller-0", "/kept")
	source := map[string]any{"bucket": bucket, "snapshot": newest, "endpoint": w.endpoint(t)}

	w.set(t, map[string]any{"restore": source})
	_, err := w.WS.Apply(t.Context())
	harness.Refused(t, err, "The etcd cluster has its data", "replace_data = true")

	w.everywhere(t, "systemctl stop etcd etcd-backup.timer; rm -rf /var/lib/etcd/*; systemctl start --no-block etcd", controllers...)
	for _, m := range controllers {
		w.everywhere(t, `for i in $(seq 50); do journalctl -u etcd | grep -q "the data of etcd are gone" && exec systemctl stop etcd; sleep 0.2; done; exit 1`, m)
	}
	w.set(t, map[string]any{"restore": nil})
	_, err = w.WS.Apply(t.Context())
	harness.Refused(t, err, "the cluster has lost its quorum", "restore_from of k8s_etcd_cluster")

	const damaged, undecipherable = "20260102T030405Z-7", "20260102T030405Z-8"
	w.copy(t, newest+snapshot.DataSuffix, damaged+snapshot.DataSuffix, func(b []byte) []byte { return b[:len(b)/2] })
	w.describe(t, newest, damaged, nil)
	w.copy(t, newest+snapshot.DataSuffix, undecipherable+snapshot.DataSuffix, func(b []byte) []byte { return b })
	w.describe(t, newest, undecipherable, []snapshot.EncryptionKey{{Name: pki.KeyEncryption, SHA256: strings.Repeat("0b", 32)}})
	for name, tt := range map[string]struct {
		change map[string]any
		words  []string
	}{
		"damaged":             {map[string]any{"snapshot": damaged}, []string{"is damaged: it has", "The cluster's data are as they were"}},
		"without its key":     {map[string]any{"snapshot": undecipherable}, []string{"its secrets need another encryption key", "othing has been changed"}},
		"another cluster's":   {map[string]any{"cluster": "other", "prefix": prefix}, []string{"it is a snapshot of cluster demo, not of other", "Nothing has been changed"}},
		"one that is missing": {map[string]any{"snapshot": "20260102T030405Z-9"}, []string{"S3 answers 404", "nothing has been changed"}},
	} {
		from := map[string]any{}
		for k, v := range source {
			from[k] = v
		}
		for k, v := range tt.change {
			from[k] = v
		}
		w.set(t, map[string]any{"restore": from})
		_, err := w.WS.Apply(t.Context())
		harness.Refused(t, err, tt.words...)
		if t.Failed() {
			t.Fatalf("%s: %v", name, err)
		}
	}
	w.everywhere(t, "! systemctl is-active etcd && ! test -e /var/lib/etcd/member", controllers...)

	w.set(t, map[string]any{"restore": source})
	w.Apply(t)
	for _, m := range controllers {
		if now, value := w.revision(t, m, "/kept"); value != "first" || now < before+bump/2 {
			t.Errorf("%s has %q at revision %d, before it was %d", m, value, now, before)
		}
	}
	if members := w.Members(t); len(members) != 3 {
		t.Errorf("members: %v", members)
	}
	w.NoChanges(t)
	w.everywhere(t, harness.Etcdctl+"put /kept third", "controller-0")
	w.set(t, map[string]any{"keep": 100, "restore": source})
	w.Apply(t)
	if _, value := w.revision(t, "controller-1", "/kept"); value != "third" {
		t.Errorf("a further apply made /kept %q", value)
	}

	// Once it is taken out of the configuration, it may be wanted again.
	const note = "test -e /var/lib/etcd/member/restored-done"
	w.everywhere(t, note+" && ! test -e /var/lib/etcd/member/restored-from", controllers...)
	w.set(t, map[string]any{"restore": nil})
	w.Apply(t, "-refresh=false")
	w.everywhere(t, "! "+note, controllers...)
}

// testOneLeft loses the data of two members for good. The cluster is made from those of the third.
func (w *world) testOneLeft(t *testing.T) {
	w.everywhere(t, harness.Etcdctl+"put /kept fourth", "controller-0")
	before, _ := w.revision(t, "controller-1", "/kept")
	controllers := harness.Numbered("controller", 3)
	w.everywhere(t, "systemctl stop etcd-backup.timer", controllers...) // it would say that etcd does not answer
	w.everywhere(t, "systemctl stop etcd; rm -rf /var/lib/etcd/*", "controller-0", "controller-2")
	w.set(t, map[string]any{"restore": map[string]any{"member": "controller-1"}})
	changes, text, err := w.WS.Plan(t.Context())
	if err != nil || !changes || !strings.Contains(text, "This plan restores etcd cluster demo") || !strings.Contains(text, "the data of controller-1") {
		t.Fatalf("%v\n%s", err, text)
	}
	w.Apply(t)
	for _, m := range controllers {
		if now, value := w.revision(t, m, "/kept"); value != "fourth" || now < before+bump/2 {
			t.Errorf("%s has %q at revision %d, before it was %d", m, value, now, before)
		}
	}
	w.NoChanges(t)
}

// endpoint returns where machines reach S3.
func (w *world) endpoint(t *testing.T) string {
	t.Helper()
	var vars struct {
		Elsewhere struct {
			AWSEndpoint string `json:"aws_endpoint"`
		} `json:"elsewhere"`
	}
	w.variables(t, &vars)
	return vars.Elsewhere.AWSEndpoint
}

// describe describes a copy of a snapshot under another name, with other keys unless they are nil.
func (w *world) describe(t *testing.T, of, name string, keys []snapshot.EncryptionKey) {
	t.Helper()
	d := w.description(t, of)
	at, revision, _ := strings.Cut(name, "-")
	d.Name = name
	d.Time = harness.Must[time.Time](t)(time.Parse("20060102T150405Z", at))
	d.Revision = harness.Must[int64](t)(strconv.ParseInt(revision, 10, 64))
	if keys != nil {
		d.EncryptionKeys = keys
	}
	w.copy(t, of+snapshot.DescriptionSuffix, name+snapshot.DescriptionSuffix, func([]byte) []byte { return harness.Must[[]byte](t)(json.Marshal(d)) })
}

// copy copies an object of the bucket under another name, changed.
func (w *world) copy(t *testing.T, from, to string, change func([]byte) []byte) {
	t.Helper()
	content := change(slices.Clone(w.get(t, prefix+from)))
	if _, err := w.s3.PutObject(t.Context(), &s3.PutObjectInput{Bucket: aws.String(bucket), Key: aws.String(prefix + to), Body: strings.NewReader(string(content))}); err != nil {
		t.Fatal(err)
	}
}
