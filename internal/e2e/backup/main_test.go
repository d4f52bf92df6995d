// Package backup_test tests k8s_etcd_backup on real members of etcd: who takes a snapshot and when,
// what counts, what waits while S3 refuses, and before which changes one is taken. Package
// restore_test restores them.
package backup_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/snapshot"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

var suite *harness.Suite

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, func(s *harness.Suite) { suite = s }))
}

const (
	bucket = harness.SnapshotBucket
	prefix = "k8s/demo/etcd/"
)

// world is one etcd cluster that keeps snapshots.
type world struct {
	*harness.Cluster
	s3   *s3.Client
	vars map[string]any
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ws := suite.Workspace(t, "backup", suite.CLI, "testdata")
	suite.Bind(t, ws, "demo")
	w := &world{suite.Cluster(ws), suite.S3(), map[string]any{}}
	suite.KeepSnapshots(t)
	suite.MustLab(t, "bucket", "example-elsewhere")
	return w
}

// set sets Terraform variables, beside those that are set already; nil unsets one.
func (w *world) set(t *testing.T, vars map[string]any) {
	t.Helper()
	maps.Copy(w.vars, vars)
	text, err := json.Marshal(w.vars)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WS.WriteFile("test.auto.tfvars.json", string(text)); err != nil {
		t.Fatal(err)
	}
}

// newest is the attribute of the resource.
type newest struct {
	Name           string   `json:"name"`
	Revision       int64    `json:"revision"`
	Hash           string   `json:"hash"`
	Size           int64    `json:"size"`
	SHA256         string   `json:"sha256"`
	Member         string   `json:"member"`
	EncryptionKeys []string `json:"encryption_keys"`
}

// newest returns the attribute, from the state: an output of it would change with every snapshot.
func (w *world) newest(t *testing.T) (out newest) {
	t.Helper()
	w.backup(t, &struct {
		Newest *newest `json:"newest"`
	}{&out})
	return out
}

// backup decodes the attributes of the resource.
func (w *world) backup(t *testing.T, v any) {
	t.Helper()
	for _, r := range w.Resources(t) {
		if r.Type == "k8s_etcd_backup" {
			if err := json.Unmarshal(r.Values, v); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatal("no k8s_etcd_backup in the state")
}

// keys returns the keys of all objects of the bucket.
func (w *world) keys(t *testing.T, bucket string) []string {
	t.Helper()
	out, err := w.s3.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &bucket})
	if err != nil {
		t.Fatal(err)
	}
	var keys []string
	for _, o := range out.Contents {
		keys = append(keys, aws.ToString(o.Key))
	}
	return keys
}

// described returns the names of the snapshots that count, oldest first.
func (w *world) described(t *testing.T, bucket string) []string {
	t.Helper()
	return snapshot.Described(prefix, w.keys(t, bucket))
}

func (w *world) get(t *testing.T, key string) []byte {
	t.Helper()
	out, err := w.s3.GetObject(t.Context(), &s3.GetObjectInput{Bucket: aws.String(bucket), Key: &key})
	if err != nil {
		t.Fatal(err)
	}
	defer out.Body.Close()
	content, err := io.ReadAll(out.Body)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func (w *world) description(t *testing.T, name string) snapshot.Description {
	t.Helper()
	d, err := snapshot.Parse(w.get(t, prefix+name+snapshot.DescriptionSuffix))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// arrives waits for a snapshot that is none of those known and fits.
func (w *world) arrives(t *testing.T, within time.Duration, known []string, what string, fits func(snapshot.Description) bool) {
	t.Helper()
	seen := map[string]bool{}
	for _, name := range known {
		seen[name] = true
	}
	harness.Eventually(t, within, what, func() error {
		var others []string
		for _, name := range w.described(t, bucket) {
			if seen[name] {
				continue
			}
			d := w.description(t, name)
			if fits(d) {
				return nil
			}
			others = append(others, name+" by "+d.Member)
		}
		return fmt.Errorf("new snapshots: %q", others)
	})
}

// drift plans and returns the whole text of a plan that must not be empty.
func (w *world) drift(t *testing.T) string {
	t.Helper()
	changes, text, err := w.WS.Plan(t.Context())
	if err != nil || !changes {
		t.Fatalf("changes %v, %v\n%s", changes, err, text)
	}
	return text
}

// console runs the program for snapshots on a machine.
func (w *world) console(t *testing.T, machine, script string) (string, error) {
	t.Helper()
	return suite.TryConsole(t.Context(), machine, script)
}

// variables reads the lab's Terraform variables.
func (w *world) variables(t *testing.T, v any) {
	t.Helper()
	out, err := suite.Lab(t.Context(), "env", "--tfvars")
	if err != nil {
		t.Fatalf("k8s-lab env --tfvars: %v\n%s", err, out)
	}
	if err := json.Unmarshal([]byte(out), v); err != nil {
		t.Fatal(err)
	}
}
