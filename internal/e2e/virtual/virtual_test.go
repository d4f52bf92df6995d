// Package virtual_test is the main job on virtual machines, which have what containers lack: kernels
// and clocks of their own, reboots of them, and disks of a size. make soak PART=vm runs it. Without KVM
// it takes the better part of an hour.
package virtual_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

var suite *harness.Suite

func TestMain(m *testing.M) {
	if os.Getenv("K8S_VM") == "" {
		fmt.Println("skipped: make soak PART=vm runs it")
		return
	}
	os.Exit(harness.Main(m, func(s *harness.Suite) { suite = s }, "--machines", "vm"))
}

// slow is what machines without KVM need, beside patience.
const slow = `
resource "k8s_etcd_cluster" "this" {
  extra_args = { etcd = { heartbeat-interval = "1000", election-timeout = "10000" } }
}
`

// workarounds are the variables that a lab of containers sets because its machines are containers.
var workarounds = []string{"kubelet_config", "kube_proxy_config", "containerd_config"}

// pod logs a line, and stays.
const pod = `
apiVersion: v1
kind: Pod
metadata: {name: hello, namespace: default}
spec:
  containers:
  - name: hello
    image: k8s-lab/toolbox:1
    command: ["sh", "-c", "echo a pod runs && exec sleep 1000000"]
`

// soon is how long something may take that a machine does by itself.
const soon = 10 * time.Minute

// externalName is a name in the lab's internet, which the VPC's resolver knows.
const externalName = "deb.debian.org"

func TestVirtualMachines(t *testing.T) {
	c := suite.Cluster(suite.Workspace(t, "vm", suite.CLI, filepath.Join(suite.Root, "examples", "ha-cluster")))
	step := harness.Steps(t)
	machines := []string{"controller-0", "worker-0", "lb-0"}
	took := map[string]time.Duration{}
	timed := func(what string, f func()) {
		began := time.Now()
		f()
		took[what] = time.Since(began).Round(time.Second)
	}
	step("apply", func(t *testing.T) {
		vars := harness.Must[[]byte](t)(os.ReadFile(filepath.Join(c.WS.Dir, "lab.auto.tfvars.json")))
		for _, name := range workarounds {
			if strings.Contains(string(vars), name) {
				t.Errorf("the lab's variables have %s:\n%s", name, vars)
			}
		}
		for name, text := range map[string]string{"one.auto.tfvars": "controllers = 1\nworkers = 1\n", "slow_override.tf": slow} {
			if err := c.WS.WriteFile(name, text); err != nil {
				t.Fatal(err)
			}
		}
		c.WS.Env = append(c.WS.Env, "K8S_PATIENCE=9")
		timed("apply", func() { c.Apply(t) })
		c.Learn(t)
	})
	step("second plan is empty", func(t *testing.T) { timed("plan", func() { c.NoChanges(t) }) })
	step("kernels, control groups and disks of their own", func(t *testing.T) {
		for _, m := range machines {
			got := strings.Fields(c.Sh(t, m, "uname -r; stat -f -c %T /sys/fs/cgroup; findmnt -no SOURCE /; systemd-detect-virt --vm"))
			t.Logf("figures: %s: %s", m, strings.Join(got, ", "))
			if len(got) != 4 || !strings.Contains(got[0], "cloud-amd64") || got[1] != "cgroup2fs" || got[2] != "/dev/vda1" || got[3] == "none" {
				t.Errorf("%s: %v", m, got)
			}
		}
	})
	step("a pod runs, its log is read, and it resolves names", func(t *testing.T) {
		c.Create(t, pod)
		c.Kubectl(t, "wait", "--for=condition=Ready", "pod/hello", "--timeout=600s")
		if out := c.Kubectl(t, "logs", "hello"); out != "a pod runs\n" {
			t.Errorf("the log says %q", out)
		}
		for _, name := range []string{externalName, "kubernetes.default.svc.cluster.local"} {
			harness.Eventually(t, soon, name+" resolves", func() error {
				_, err := suite.Kubectl(t.Context(), c.Kubeconfig, nil, "exec", "hello", "--", "nslookup", name)
				return err
			})
		}
	})
	step("every machine reboots", func(t *testing.T) {
		for _, m := range machines {
			before := c.Sh(t, m, "cat /proc/sys/kernel/random/boot_id")
			_, _ = c.TrySh(t.Context(), m, "systemctl reboot")
			harness.Eventually(t, soon, m+" boots again", func() error {
				now, err := c.TrySh(t.Context(), m, "cat /proc/sys/kernel/random/boot_id")
				if err == nil && now == before {
					err = errors.New("it has not ended yet")
				}
				return err
			})
		}
		harness.Eventually(t, soon, "the node is Ready and the pod answers", func() error {
			out, err := suite.Kubectl(t.Context(), c.Kubeconfig, nil, "get", "node", "worker-0", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].status}`)
			if err == nil && out != "True" {
				err = fmt.Errorf("Ready is %q", out)
			}
			if err == nil {
				_, err = suite.Kubectl(t.Context(), c.Kubeconfig, nil, "exec", "hello", "--", "true")
			}
			return err
		})
		c.NoChanges(t)
	})
	step("a slow disk is told", func(t *testing.T) { testSlowDisk(t, c) })
	step("a root volume grows", func(t *testing.T) {
		if err := c.WS.WriteFile("grown_override.tf", "resource \"k8s_machine\" \"worker\" {\n  root_volume_size = 24\n}\n"); err != nil {
			t.Fatal(err)
		}
		timed("grow", func() { c.Apply(t) })
		if out := strings.TrimSpace(c.Sh(t, "worker-0", "df --output=size -BG / | tail -1 | tr -dc 0-9")); out != "24" && out != "23" {
			t.Errorf("the file system has %s GiB", out)
		}
		c.NoChanges(t)
	})
	step("a clock that jumps an hour is noticed", func(t *testing.T) {
		c.Sh(t, "worker-0", "timedatectl set-ntp false; date -s '+1 hour'")
		_, text, err := c.WS.Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		harness.Says(t, text, "worker-0", "clock", "ahead")
		c.Sh(t, "worker-0", "date -s '-1 hour'; timedatectl set-ntp true")
		c.NoChanges(t)
	})
	step("destroy leaves nothing", func(t *testing.T) { timed("destroy", func() { c.Destroy(t) }) })
	t.Logf("figures: apply %s, plan %s, growing a root volume %s, destroy %s", took["apply"], took["plan"], took["grow"], took["destroy"])
}
