package topologies_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

// cloudProvider gives the provider configuration without alias what the environment lacks: all of AWS.
const cloudProvider = `
provider "k8s" {
  region     = %q
  access_key = %q
  secret_key = %q
  endpoints = {
    ec2                  = %[4]q
    ec2_instance_connect = %[4]q
    elbv2                = %[4]q
    s3                   = %[4]q
    ssm                  = %[4]q
    sts                  = %[4]q
  }
}
`

// stray is a machine of EC2 and keys in SSM under the provider configuration without AWS.
const stray = `
resource "k8s_network" "stray" {
  provider    = k8s.basement
  cluster     = "stray"
  admin_cidrs = var.admin_cidrs
}

resource "k8s_machine" "stray" {
  provider   = k8s.basement
  name       = "worker-0"
  role       = "worker"
  private_ip = "10.240.0.20"
  network = {
    cluster            = "stray"
    vpc_id             = "vpc-0123456789abcdef0"
    vpc_cidr           = "10.240.0.0/16"
    node_cidr          = "10.240.0.0/24"
    subnets            = [{ id = "subnet-0123456789abcdef0", cidr = "10.240.0.0/24" }]
    security_group_ids = { worker = "sg-0123456789abcdef0", ssh = "sg-0123456789abcdef1" }
  }
}

resource "k8s_pki" "stray" {
  provider = k8s.basement
  cluster  = "stray"
}
`

// sites is the workspace of examples/sites and its two clusters.
type sites struct {
	ws              *workspace.Workspace
	cloud, basement *harness.Cluster
}

// openSites returns the clusters of examples/sites. Nothing in the environment of its commands is of AWS: only the
// provider configuration of the cluster on EC2 has that.
func openSites(t *testing.T, vars map[string]any) *sites {
	t.Helper()
	for _, module := range []string{"modules/cluster", "own-machines"} {
		copyModule(t, filepath.Join(suite.Dir, "sites"), module)
	}
	ws := suite.Workspace(t, "sites/main", suite.CLI, filepath.Join(suite.Root, "examples", "sites"))
	destroyIfFailed(t, ws)
	withoutAWS(ws)
	writeOwn(t, ws, vars)
	s := &sites{ws: ws, cloud: suite.Cluster(ws), basement: suite.Cluster(ws)}
	s.write(t, "cloud_override.tf", fmt.Sprintf(cloudProvider, suite.Getenv("AWS_REGION"), suite.Getenv("AWS_ACCESS_KEY_ID"), suite.Getenv("AWS_SECRET_ACCESS_KEY"), suite.Getenv("AWS_ENDPOINT_URL")))
	return s
}

func (s *sites) write(t *testing.T, name, text string) {
	t.Helper()
	if err := s.ws.WriteFile(name, text); err != nil {
		t.Fatal(err)
	}
}

func (s *sites) remove(t *testing.T, name string) {
	t.Helper()
	if err := os.Remove(filepath.Join(s.ws.Dir, name)); err != nil {
		t.Fatal(err)
	}
}

// learn reads the kubeconfigs and the machines on EC2 from the state.
func (s *sites) learn(t *testing.T) {
	t.Helper()
	for output, c := range map[string]*harness.Cluster{"cloud_kubeconfig": s.cloud, "basement_kubeconfig": s.basement} {
		var kubeconfig string
		if err := s.ws.Output(t.Context(), output, &kubeconfig); err != nil {
			t.Fatal(err)
		}
		s.write(t, output, kubeconfig)
		c.Kubeconfig = filepath.Join(s.ws.Dir, output)
	}
	s.cloud.Addresses, s.cloud.HostKeys = map[string]string{}, map[string]string{}
	for _, m := range s.cloud.Machines(t) {
		s.cloud.Addresses[m.Host.Name], s.cloud.HostKeys[m.Host.Name] = m.Host.Address, m.Host.HostKey
	}
}

// nodes fails the test unless worker-0 is the only node of the cluster, and ready.
func nodes(t *testing.T, c *harness.Cluster, podCIDR string) {
	t.Helper()
	harness.Eventually(t, time.Minute, "worker-0 is ready", func() error {
		out, err := suite.Kubectl(t.Context(), c.Kubeconfig, nil, "get", "nodes", "-o",
			`jsonpath={range .items[*]}{.metadata.name} {.spec.podCIDR} {.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}`)
		if want := "worker-0 " + podCIDR + " True\n"; err == nil && out != want {
			err = fmt.Errorf("nodes %q, wanted %q", out, want)
		}
		return err
	})
}

// calls returns how many calls the lab's APIs have had from each access key. Those that were not signed have the
// key "".
func calls(t *testing.T) map[string]int {
	t.Helper()
	out, err := suite.Lab(t.Context(), "logs", "--calls")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	count := map[string]int{}
	for line := range strings.Lines(out) {
		var call struct {
			Key string `json:"access_key_id"`
		}
		if err := json.Unmarshal([]byte(line), &call); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		count[call.Key]++
	}
	return count
}

// alone runs a command for the cluster in the basement twice: first without anything of AWS, then with a region and
// credentials in the environment for an AWS that fails. Neither may ask AWS for anything.
func (s *sites) alone(t *testing.T, run func() error) {
	t.Helper()
	var asked atomic.Int32
	decoy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		t.Errorf("AWS was asked: %s %s", r.Method, r.URL)
		w.WriteHeader(http.StatusForbidden)
	}))
	defer decoy.Close()
	s.remove(t, "cloud_override.tf")
	env := s.ws.Env
	defer func() { s.ws.Env = env }()
	before := calls(t)
	for _, more := range [][]string{nil, {"AWS_REGION=eu-central-1", "AWS_ACCESS_KEY_ID=AKIADECOY", "AWS_SECRET_ACCESS_KEY=decoy", "AWS_ENDPOINT_URL=" + decoy.URL}} {
		s.ws.Env = append(slices.Clone(env), more...)
		if err := run(); err != nil {
			t.Error(err)
		}
	}
	if after := calls(t); !maps.Equal(before, after) {
		t.Errorf("calls of AWS by access key: %v, before %v", after, before)
	}
}

// TestSites makes a cluster on EC2 and one on machines without EC2 in one apply. The provider configuration of the
// latter has neither a region nor credentials.
func TestSites(t *testing.T) {
	inSoak(t)
	l := newLAN(t)
	machines := map[string]lanMachine{"controller-0": l.startDebian("12", 1, "controller-0", 2560), "worker-0": l.start(2, "worker-0", 2048)}
	s := openSites(t, map[string]any{
		"basement_network": lanNetwork, "basement_ssh_key_file": suite.SSH,
		"basement_controllers": map[string]lanMachine{"controller-0": machines["controller-0"]},
		"basement_workers":     map[string]ownMachine{"worker-0": {lanMachine: machines["worker-0"]}},
	})
	s.basement.Addresses, s.basement.HostKeys = map[string]string{}, map[string]string{}
	before := map[string]string{}
	for name, m := range machines {
		s.basement.Addresses[name], s.basement.HostKeys[name] = m.Address, m.HostKey
		booted(t, s.basement, name)
		before[name] = s.basement.Sh(t, name, ownState)
	}
	step := harness.Steps(t)
	step("one apply makes both clusters", func(t *testing.T) {
		s.cloud.Apply(t)
		s.learn(t)
	})
	step("second plan is empty", s.cloud.NoChanges)
	step("each cluster has its own nodes", func(t *testing.T) {
		nodes(t, s.cloud, "10.201.0.0/24")
		nodes(t, s.basement, "10.200.0.0/24")
	})
	step("only the configuration with credentials asked AWS", func(t *testing.T) {
		got := calls(t)
		maps.DeleteFunc(got, func(key string, _ int) bool { return strings.HasPrefix(key, "ASIA") }) // sessions of other tests' machines
		if len(got) != 1 || got[suite.Getenv("AWS_ACCESS_KEY_ID")] == 0 {
			t.Errorf("calls of AWS by access key: %v", got)
		}
	})
	step("what is in AWS is refused without it", func(t *testing.T) { testStray(t, s) })
	step("a plan of the basement asks AWS for nothing", func(t *testing.T) {
		override, err := os.ReadFile(filepath.Join(s.ws.Dir, "cloud_override.tf"))
		if err != nil {
			t.Fatal(err)
		}
		s.alone(t, func() error {
			changes, text, err := s.ws.Plan(t.Context(), "-target=module.basement")
			if err == nil && changes {
				err = fmt.Errorf("the plan is not empty:\n%s", text)
			}
			return err
		})
		s.write(t, "cloud_override.tf", string(override))
	})
	step("damage to one cluster is named, and the other one is left alone", func(t *testing.T) {
		for _, damage := range []struct {
			c           *harness.Cluster
			mine, other string
		}{{s.basement, "module.basement", "module.cloud"}, {s.cloud, "module.cloud", "module.basement"}} {
			damage.c.Sh(t, "worker-0", "systemctl stop kubelet")
			changes, text, err := s.ws.Plan(t.Context())
			if err != nil || !changes {
				t.Fatalf("changes %t, %v", changes, err)
			}
			harness.Says(t, text, damage.mine+".k8s_worker_pool.this", "unit kubelet.service: stopped, wanted running")
			if strings.Contains(text, damage.other+".k8s_worker_pool.this"+"[0] will") || strings.Contains(text, damage.other+".k8s_worker_pool.this will") {
				t.Errorf("the plan changes the other cluster:\n%s", text)
			}
			s.cloud.Apply(t)
			s.cloud.NoChanges(t)
		}
	})
	step("destroy of the cluster on EC2 leaves the other one", func(t *testing.T) {
		if _, err := s.ws.Destroy(t.Context(), "-target=module.cloud"); err != nil {
			t.Fatal(err)
		}
		suite.Empty(t)
		nodes(t, s.basement, "10.200.0.0/24")
	})
	step("destroy of the rest asks AWS for nothing, and leaves nothing", func(t *testing.T) {
		s.alone(t, func() error {
			_, err := s.ws.Destroy(t.Context())
			return err
		})
		for name := range machines {
			if after := s.basement.Sh(t, name, ownState); after != before[name] {
				t.Errorf("%s had\n%s\nand has\n%s", name, before[name], after)
			}
		}
	})
}

// testStray lets resources of AWS have the provider configuration that has nothing of AWS.
func testStray(t *testing.T, s *sites) {
	t.Helper()
	s.write(t, "stray.tf", stray)
	defer s.remove(t, "stray.tf")
	_, err := s.ws.Apply(t.Context(), "-target=k8s_network.stray", "-target=k8s_machine.stray", "-target=k8s_pki.stray")
	harness.Refused(t, err,
		"Cannot make network stray", "with k8s_network.stray", "Cannot make machine worker-0", "with k8s_machine.stray", "Cannot make the keys of cluster stray", "with k8s_pki.stray",
		"no AWS region", "Nothing was changed", "which provider configuration")
}
