// Package rotation_test rotates every key of one cluster of examples/ha-cluster, with real
// Terraform, while clients that trust what a person would trust at the time read and write through
// the Elastic IP. All keys are rotated together, with one apply that is killed half way. With
// K8S_ROTATION_APART=1, as `make soak PART=rotation` sets it, the Kubernetes CA is rotated alone
// and the others after it.
//
// Half of the authorities are intermediates of a company: the rotation goes to a given Kubernetes
// CA, and away from a given etcd CA and front-proxy CA; with K8S_ROTATION_APART=1 the other way
// round. Package rolls_test covers encrypted secrets in etcd in more detail.
package rotation_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/company"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

const workers = 1

var (
	suite       *harness.Suite
	controllers = harness.Numbered("controller", 3)
	machines    = slices.Concat(controllers, harness.Numbered("worker", workers), []string{"lb-0"})
)

func TestMain(m *testing.M) {
	os.Exit(harness.Main(m, func(s *harness.Suite) { suite = s }))
}

// more is added to the example's configuration.
const more = `
variable "generations" {
  type    = map(list(number))
  default = {}
}

variable "authorities" {
  type    = map(map(object({ certificate_pem = string, chain_pem = optional(string) })))
  default = {}
}

variable "authority_keys" {
  type      = map(string)
  default   = {}
  ephemeral = true
}

resource "k8s_addon" "metrics" {
  name          = "metrics-server"
  control_plane = k8s_control_plane.this.ref
  depends_on    = [k8s_worker_pool.this]
}
`

// cluster is the cluster under test and its configured generations.
type cluster struct {
	*harness.Cluster
	generations map[string][]int
	root        *company.Authority
	given       map[pki.Kind]map[int]*company.Authority
	services    int
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	example := filepath.Join(suite.Root, "examples", "ha-cluster")
	c := &cluster{Cluster: suite.Cluster(suite.Workspace(t, "rotation", suite.CLI, example)), generations: map[string][]int{}}
	source, err := os.ReadFile(filepath.Join(example, "main.tf"))
	if err != nil {
		t.Fatal(err)
	}
	const at = "resource \"k8s_pki\" \"this\" {\n"
	if strings.Count(string(source), at) != 1 {
		t.Fatalf("the example has no %q any more", at)
	}
	c.found(t)
	lookups, authorities := "", ""
	for _, k := range pki.Kinds() {
		lookups += fmt.Sprintf("    %s = lookup(var.generations, %q, null)\n", k, k)
	}
	for _, k := range pki.AuthorityKinds() {
		authorities += fmt.Sprintf("    %[1]s = { for n, a in lookup(var.authorities, %[1]q, {}) : n => merge(a, { private_key_wo = lookup(var.authority_keys, \"%[1]s/${n}\", null) }) }\n", k)
	}
	for name, content := range map[string]string{
		"main.tf": strings.Replace(string(source), at, at+"  generations = {\n"+lookups+"  }\n  authorities = {\n"+authorities+"  }\n", 1),
		"more.tf": more,
	} {
		if err := c.WS.WriteFile(name, content); err != nil {
			t.Fatal(err)
		}
	}
	c.set(t, nil)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log of every command is %s", filepath.Join(suite.Dir, "rotation.log"))
		}
	})
	return c
}

// set configures the generations of keys and returns the previous ones.
func (c *cluster) set(t *testing.T, generations map[pki.Kind][]int) map[string][]int {
	t.Helper()
	before := maps.Clone(c.generations)
	for k, list := range generations {
		c.generations[string(k)] = list
	}
	c.write(t)
	return before
}

func (c *cluster) write(t *testing.T) {
	t.Helper()
	authorities, keys := c.configured(t)
	b, err := json.Marshal(map[string]any{"workers": workers, "generations": c.generations, "authorities": authorities, "authority_keys": keys})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.WS.WriteFile("test.auto.tfvars.json", string(b)); err != nil {
		t.Fatal(err)
	}
}

// refused checks that a plan with these generations fails with all of the words.
func (c *cluster) refused(t *testing.T, generations map[pki.Kind][]int, words ...string) {
	t.Helper()
	before := c.set(t, generations)
	_, _, err := c.WS.Plan(t.Context())
	c.generations = before
	c.write(t)
	if err == nil {
		t.Errorf("%v was not refused", generations)
		return
	}
	says(t, err.Error(), words...)
}

// says checks that Terraform's output contains all of the words, wherever lines are broken.
func says(t *testing.T, text string, words ...string) {
	t.Helper()
	flat := strings.Join(strings.Fields(strings.NewReplacer("│", " ", "╷", " ", "╵", " ").Replace(text)), " ")
	for _, w := range words {
		if !strings.Contains(flat, w) {
			t.Errorf("it does not say %q:\n%s", w, text)
		}
	}
}

// stored returns the names in the key store.
func stored(t *testing.T) []string {
	t.Helper()
	const prefix = "/k8s/demo/pki/"
	pages := ssm.NewGetParametersByPathPaginator(ssm.NewFromConfig(suite.AWS()), &ssm.GetParametersByPathInput{Path: aws.String(strings.TrimSuffix(prefix, "/"))})
	var out []string
	for pages.HasMorePages() {
		page, err := pages.NextPage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range page.Parameters {
			out = append(out, strings.TrimPrefix(aws.ToString(p.Name), prefix))
		}
	}
	slices.Sort(out)
	return out
}

// ref returns the reference in the state.
func (c *cluster) ref(t *testing.T) pki.Ref {
	t.Helper()
	for _, r := range c.Resources(t) {
		if r.Type != "k8s_pki" {
			continue
		}
		var v struct {
			Ref struct {
				KubernetesCA string          `json:"kubernetes_ca_pem"`
				Chain        string          `json:"kubernetes_ca_chain_pem"`
				EtcdCA       string          `json:"etcd_ca_pem"`
				FrontProxyCA string          `json:"front_proxy_ca_pem"`
				PublicKey    string          `json:"service_account_public_key_pem"`
				Generations  pki.Generations `json:"generations"`
			} `json:"ref"`
		}
		if err := json.Unmarshal(r.Values, &v); err != nil {
			t.Fatal(err)
		}
		return pki.Ref{KubernetesCA: v.Ref.KubernetesCA, KubernetesCAChain: v.Ref.Chain, EtcdCA: v.Ref.EtcdCA, FrontProxyCA: v.Ref.FrontProxyCA,
			ServiceAccountPublicKey: v.Ref.PublicKey, Generations: v.Ref.Generations}
	}
	t.Fatal("no k8s_pki in the state")
	return pki.Ref{}
}

// kubeconfig issues a person's kubeconfig with the present keys, under the given name.
func (c *cluster) kubeconfig(t *testing.T, name string) string {
	t.Helper()
	c.Learn(t)
	b, err := os.ReadFile(c.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(suite.Dir, "kubeconfig-"+name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// works uses everything that depends on the keys: logs and exec (API server to kubelet), DNS of a
// new service (a pod's client to the API server) and metrics (API server to extension API server
// and back).
func (c *cluster) works(t *testing.T) {
	t.Helper()
	c.services++
	name := fmt.Sprintf("service-%d", c.services)
	c.Kubectl(t, "create", "service", "clusterip", name, "--tcp=80:80")
	harness.Eventually(t, time.Minute, "DNS of a new service", func() error {
		out, err := suite.Kubectl(t.Context(), c.Kubeconfig, nil, "exec", "client", "--", "nslookup", name+".default.svc.cluster.local", "10.32.0.10")
		if err == nil && !strings.Contains(out, name) {
			return fmt.Errorf("nslookup prints %s", out)
		}
		return err
	})
	if out := c.Kubectl(t, "logs", "client"); strings.TrimSpace(out) != "ready" {
		t.Errorf("the pod's log is %q", out)
	}
	if out := c.Kubectl(t, "get", "pod", "client", "-o", "jsonpath={.status.containerStatuses[0].restartCount}"); out != "0" {
		t.Errorf("the pod restarted %s times", out)
	}
	harness.Eventually(t, time.Minute, "metrics of the nodes", func() error {
		_, err := suite.Kubectl(t.Context(), c.Kubeconfig, nil, "get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes")
		return err
	})
}
