package drills_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// restoreFrom sets the argument of k8s_etcd_cluster.
func (w *world) restoreFrom(t *testing.T, text string) {
	t.Helper()
	if err := w.WS.WriteFile("restore_override.tf", "resource \"k8s_etcd_cluster\" \"this\" {\n  restore_from = "+text+"\n}\n"); err != nil {
		t.Fatal(err)
	}
}

// silent checks that the endpoint does not answer, and that the plan says what to do.
func (w *world) silent(t *testing.T) {
	t.Helper()
	_, text, err := w.WS.Plan(t.Context())
	if err != nil || !strings.Contains(text, "Warning: etcd has lost its quorum") || !strings.Contains(harness.Flat(text), "set restore_from") {
		t.Errorf("the plan says %v\n%s", err, text)
	}
	if out, err := w.lab.Kubectl(t.Context(), w.Kubeconfig, nil, "get", "namespaces", "--request-timeout=10s"); err == nil {
		t.Errorf("the endpoint answers without a quorum: %s", out)
	}
}

// testTwoLost terminates two controllers, so the quorum is gone and the endpoint stops. The cluster is
// made from the data of the member that is left. What the others had acknowledged, and this one had
// not yet got, is lost: a figure, and not asserted.
func (w *world) testTwoLost(t *testing.T) {
	w.healthy(t)
	result := w.record(t, "two controllers lost", func(t *testing.T) {
		w.terminate(t, controllers[1], controllers[2])
		time.Sleep(10 * time.Second)
		w.silent(t)
		w.restoreFrom(t, `{ member = "controller-0" }`)
		w.killedWhen(t, "etcd: making the data of a new cluster from its data")
	})
	if result.Gap < 10*time.Second {
		t.Errorf("the endpoint answered without a quorum: longest gap %s", result.Gap)
	}
}

// killedWhen starts an apply and kills it as soon as it says something on a machine. The next one goes on.
func (w *world) killedWhen(t *testing.T, says string) {
	t.Helper()
	if err := os.Truncate(w.lab.ProviderLog(), 0); err != nil {
		t.Fatal(err)
	}
	w.Killed(t, strconv.Quote(says), func() bool { return len(w.lab.Order(t, says)) > 0 })
}

// treasure is what a restored cluster must have.
type treasure struct {
	token    string // of a service account
	nodes    string
	revision int64 // above all others
}

// bury makes objects and takes a snapshot, and then another object.
func (w *world) bury(t *testing.T, name string) treasure {
	t.Helper()
	w.Kubectl(t, "create", "secret", "generic", name, "--from-literal=password=before")
	w.Kubectl(t, "create", "configmap", name, "--from-literal=a=b")
	b := treasure{token: strings.TrimSpace(w.Kubectl(t, "create", "token", "default", "--duration=2h")), nodes: w.Kubectl(t, "get", "nodes", "-o", "name")}
	w.lab.Console(t, controllers[0], "/usr/local/sbin/etcd-backup take")
	w.Kubectl(t, "create", "configmap", name+"-later", "--from-literal=a=b")
	b.revision = w.version(t, name+"-later")
	return b
}

// find checks that the restored cluster has what was buried, and that it goes on.
func (w *world) find(t *testing.T, name string, b treasure) {
	t.Helper()
	w.held(t)
	if code := w.ask(t, b.token); code != http.StatusOK {
		t.Errorf("a token of before gets %d", code)
	}
	if out := w.Kubectl(t, "get", "secret", name, "-o", "jsonpath={.data.password}"); out != "YmVmb3Jl" {
		t.Errorf("the secret is %q", out)
	}
	if w.version(t, name) <= 0 {
		t.Error("the object has no version")
	}
	if now := w.newVersion(t); now <= b.revision {
		t.Errorf("a new object has the revision %d, one of before %d", now, b.revision)
	}
	if out, err := w.lab.Kubectl(t.Context(), w.Kubeconfig, nil, "get", "configmap", name+"-later"); err == nil {
		t.Errorf("what is younger than the snapshot is there: %s", out)
	}
	if now := w.Kubectl(t, "get", "nodes", "-o", "name"); now != b.nodes {
		t.Errorf("nodes: %s, before %s", now, b.nodes)
	}
}

// tolerance is how far the member that takes a snapshot may be behind the others.
const tolerance = time.Second

// testAllLost terminates all controllers and the load balancer while clients write, some seconds after
// a snapshot. The cluster is restored from it on new machines. What is lost is younger than it.
func (w *world) testAllLost(t *testing.T) {
	w.healthy(t)
	const name = "all-lost"
	var (
		b     treasure
		taken time.Duration // when the snapshot began
	)
	endpoint := w.Endpoint
	result := w.record(t, "all controllers and the load balancer lost", func(t *testing.T) {
		taken = time.Since(w.began)
		b = w.bury(t, name)
		time.Sleep(5 * time.Second)
		w.terminate(t, append([]string{"lb-0"}, controllers...)...)
		time.Sleep(10 * time.Second)
		w.silent(t)
		w.restoreFrom(t, fmt.Sprintf(`{ bucket = %q, endpoint = var.elsewhere.aws_endpoint }`, harness.SnapshotBucket))
		w.killedWhen(t, "etcd: making its data from snapshot ")
	})
	if len(result.Unread) > 0 || result.Undone == 0 || result.OldestUndone < taken-tolerance {
		t.Errorf("the snapshot began at %s, and %d writes are lost, the oldest of %s; unread: %v", taken, result.Undone, result.OldestUndone, result.Unread)
	}
	if w.Endpoint != endpoint {
		t.Errorf("the endpoint was %s and is %s", endpoint, w.Endpoint)
	}
	w.find(t, name, b)
}

// testEverythingGone loses the whole region: machines, network, keys and buckets. Another region has
// copies of the buckets, with a snapshot and a copy of the keys. Another configuration makes the cluster
// there from them, with other addresses: tokens, secrets and workloads are those of before, and the old
// nodes are not.
func (w *world) testEverythingGone(t *testing.T) {
	const name = "all-gone"
	w.Learn(t)
	w.healthy(t)
	w.Create(t, harness.Web)
	w.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=90s")
	b := w.bury(t, name)
	var key string
	if err := w.WS.Output(t.Context(), "key_copy", &key); err != nil {
		t.Fatal(err)
	}
	uids := w.Kubectl(t, "get", "nodes", "-o", "jsonpath={.items[*].metadata.uid}")

	again := newWorld(t, suite.Region(t, "eu-central-1", releases...), "again")
	for _, bucket := range []string{harness.SnapshotBucket, copies} {
		replicate(t, w.lab, again.lab, bucket)
	}
	w.lab.Down(t)
	again.set(t, w.vars)
	for file, text := range map[string]string{
		"elsewhere_override.tf": "resource \"k8s_network\" \"this\" {\n  vpc_cidr  = \"10.77.0.0/16\"\n  node_cidr = \"10.77.0.0/24\"\n}\n",
		"identity.tf":           "variable \"identity\" {\n  type      = string\n  ephemeral = true\n  default   = null\n}\n",
		"keys_override.tf": fmt.Sprintf("resource \"k8s_pki\" \"this\" {\n  restore_from = {\n    bucket = %q\n    key    = %q\n  }\n  restore_identity_wo = var.identity\n}\n",
			copies, key),
	} {
		if err := again.WS.WriteFile(file, text); err != nil {
			t.Fatal(err)
		}
	}
	again.restoreFrom(t, fmt.Sprintf(`{ bucket = %q, endpoint = var.elsewhere.aws_endpoint }`, harness.SnapshotBucket))
	again.WS.Env = append(again.WS.Env, "TF_VAR_identity="+identity.String())
	start := time.Now()
	again.Apply(t)
	t.Logf("figures: the region gone, but for copies of the buckets: restored in %s", time.Since(start).Round(time.Second))
	again.Learn(t)
	again.healthy(t)
	again.NoChanges(t)
	again.find(t, name, b)
	for _, uid := range strings.Fields(again.Kubectl(t, "get", "nodes", "-o", "jsonpath={.items[*].metadata.uid}")) {
		if strings.Contains(uids, uid) {
			t.Errorf("node %s is one of before", uid)
		}
	}
	if out := again.Kubectl(t, "get", "endpoints", "kubernetes", "-o", "jsonpath={.subsets[*].addresses[*].ip}"); strings.Contains(out, "10.240.") || len(strings.Fields(out)) != len(controllers) {
		t.Errorf("API servers: %s", out)
	}
	again.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=120s")
	again.Destroy(t)
}

// replicate copies all objects of a bucket to that of another region.
func replicate(t *testing.T, from, to *harness.Suite, bucket string) {
	t.Helper()
	source, target := from.S3(), to.S3()
	list := harness.Must[*s3.ListObjectsV2Output](t)(source.ListObjectsV2(t.Context(), &s3.ListObjectsV2Input{Bucket: &bucket}))
	if len(list.Contents) == 0 || aws.ToBool(list.IsTruncated) {
		t.Fatalf("bucket %s: %d objects, more: %t", bucket, len(list.Contents), aws.ToBool(list.IsTruncated))
	}
	for _, o := range list.Contents {
		found := harness.Must[*s3.GetObjectOutput](t)(source.GetObject(t.Context(), &s3.GetObjectInput{Bucket: &bucket, Key: o.Key}))
		content, err := io.ReadAll(found.Body)
		if err := errors.Join(err, found.Body.Close()); err != nil {
			t.Fatal(err)
		}
		harness.Must[*s3.PutObjectOutput](t)(target.PutObject(t.Context(), &s3.PutObjectInput{Bucket: &bucket, Key: o.Key, Body: bytes.NewReader(content)}))
	}
}

// version returns the resourceVersion of a ConfigMap.
func (w *world) version(t *testing.T, name string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(w.Kubectl(t, "get", "configmap", name, "-o", "jsonpath={.metadata.resourceVersion}"), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// newVersion returns the resourceVersion of a new object.
func (w *world) newVersion(t *testing.T) int64 {
	t.Helper()
	name := fmt.Sprintf("new-%d", time.Now().UnixNano())
	w.Kubectl(t, "create", "configmap", name)
	return w.version(t, name)
}

// ask asks the API server with a token for what every service account may read, and returns the status.
func (w *world) ask(t *testing.T, token string) int {
	t.Helper()
	out := w.lab.Console(t, controllers[0], "curl -s -o /dev/null -w '%{http_code}' --cacert /etc/kubernetes/pki/ca.crt -H 'Authorization: Bearer "+token+"' https://127.0.0.1:6443/api")
	code, err := strconv.Atoi(strings.TrimSpace(out))
	if err != nil {
		t.Fatalf("curl printed %q", out)
	}
	return code
}

// held waits until both leader elections have a holder that has just renewed.
func (w *world) held(t *testing.T) {
	t.Helper()
	for _, name := range []string{"kube-controller-manager", "kube-scheduler"} {
		harness.Eventually(t, 30*time.Second, "the lease "+name, func() error {
			out, err := w.lab.Kubectl(t.Context(), w.Kubeconfig, nil, "get", "lease", "-n", "kube-system", name, "-o", "json")
			if err != nil {
				return err
			}
			var lease struct {
				Spec struct {
					Holder string    `json:"holderIdentity"`
					Renew  time.Time `json:"renewTime"`
				} `json:"spec"`
			}
			if err := json.Unmarshal([]byte(out), &lease); err != nil {
				return err
			}
			if lease.Spec.Holder == "" || time.Since(lease.Spec.Renew) > 15*time.Second {
				return fmt.Errorf("held by %q, renewed at %s", lease.Spec.Holder, lease.Spec.Renew)
			}
			return nil
		})
	}
}
