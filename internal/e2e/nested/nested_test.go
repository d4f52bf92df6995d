// Package nested_test is the main job in a local EC2 of containers that runs on a virtual machine of another local
// EC2. So its host is what laptops and runners of CI are, whatever the host of the test is: Debian's kernel,
// systemd, cgroup v2, a firewall that drops what comes in, and addresses that are in use already. make soak
// PART=nested runs it. Without KVM it takes about an hour.
package nested_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
)

var suite *harness.Suite

func TestMain(m *testing.M) {
	if os.Getenv("K8S_NESTED") == "" {
		fmt.Println("skipped: make soak PART=nested runs it")
		return
	}
	os.Exit(harness.Main(m, func(s *harness.Suite) { suite = s }, "--machines", "vm"))
}

// host is the name of the virtual machine.
const host = "worker-0"

// prelude begins every script on the host. Programs and files are where copyTo has put them.
const prelude = `set -eu
export HOME=/root PATH="/root/bin:$PATH"
export GOCOVERDIR=/root/cover K8S_SSH_PRIVATE_KEY_FILE=/root/ssh_key TF_CLI_CONFIG_FILE=/root/terraformrc TF_IN_AUTOMATION=1
cd /root/work
`

// asComputersAre makes the host what the computers of people often are.
const asComputersAre = `
test "$(stat -f -c %T /sys/fs/cgroup)" = cgroup2fs
nft -f - <<END
table inet filter {
	chain input {
		type filter hook input priority 0; policy drop;
		ct state established,related accept
		iif lo accept
		tcp dport 22 accept
		icmp type echo-request accept
	}
	chain forward { type filter hook forward priority 0; policy drop; }
}
END
gateway=$(ip -4 route show default | awk '{ print $3; exit }')
ip route replace 198.51.100.0/24 via "$gateway"
ip link add taken type dummy
ip address add 203.0.113.1/24 dev taken
ip link set taken up
`

// slow is what a slow computer needs, beside patience.
const slow = `
resource "k8s_etcd_cluster" "this" {
  extra_args = { etcd = { heartbeat-interval = "1000", election-timeout = "10000" } }
}

resource "k8s_lb" "this" {
  check_interval = "8s"
}
`

const terraformrc = `disable_checkpoint = true
provider_installation {
  dev_overrides {
    "k8s-from-scratch/k8s" = "/root/bin"
  }
  direct {}
}
`

// left lists what a lab changes on its host while it runs.
const left = `
cat /sys/fs/cgroup/cgroup.subtree_control /proc/sys/fs/inotify/max_user_instances
ls -d /sys/fs/cgroup/k8s-lab 2>/dev/null || true
ip netns list
ip -o link | grep -o ' kl[0-9]*[@:]' || true
ip route show type unreachable
losetup -a
findmnt -rn -o TARGET | grep k8s-lab || true
grep k8s /etc/hosts || true
`

// troubles tells why a machine may not have answered.
const troubles = `
set +e
uptime; free -m
k8s-lab status
ip -4 address; ip -4 route; nft list ruleset
for m in lb-0 controller-0 worker-0; do
	echo "== $m"
	k8s-lab console $m | tail -n 15
	k8s-lab exec $m -- sh -c 'ip -4 address; systemctl --failed --no-legend; systemctl list-jobs; ss -ltn'
done
k8s-lab logs | tail -n 40
`

func TestNested(t *testing.T) {
	c := suite.Cluster(suite.Workspace(t, "nested", suite.CLI, "testdata"))
	step := harness.Steps(t)
	took := map[string]time.Duration{}
	sh := func(t *testing.T, what, script string) string {
		t.Helper()
		began := time.Now()
		out := c.Sh(t, host, prelude+script)
		took[what] = time.Since(began).Round(time.Second)
		t.Logf("%s: %s", what, took[what])
		return out
	}
	t.Cleanup(func() {
		if !t.Failed() || c.Addresses == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 5*time.Minute)
		defer cancel()
		out, err := c.TrySh(ctx, host, prelude+troubles)
		t.Logf("what the host says (%v):\n%s", err, out)
	})
	var before string
	step("a virtual machine", func(t *testing.T) {
		c.Apply(t)
		var at struct {
			Address string `json:"address"`
			HostKey string `json:"host_key"`
		}
		if err := c.WS.Output(t.Context(), "host", &at); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(at.Address, "198.51.100.") {
			t.Fatalf("the outer lab has the addresses around %s, and the test expects 198.51.100.0/24 for it", at.Address)
		}
		c.Addresses, c.HostKeys = map[string]string{host: at.Address}, map[string]string{host: at.HostKey}
		t.Logf("figures: %s", strings.Join(strings.Fields(c.Sh(t, host, "uname -r; . /etc/os-release; echo $PRETTY_NAME | tr ' ' _; systemd-detect-virt")), ", "))
		provide(t, c)
	})
	step("a host as computers are", func(t *testing.T) {
		sh(t, "packages", "bash /root/deps.sh")
		sh(t, "settings", asComputersAre)
		before = sh(t, "what is there before", left)
	})
	step("the lab starts", func(t *testing.T) {
		out := sh(t, "up", "k8s-lab up --quota vcpus=32 2>&1")
		if !strings.Contains(out, "198.18.0.0/26") {
			t.Errorf("the lab's addresses are not of the range that is free:\n%s", out)
		}
	})
	const terraform = `eval "$(k8s-lab env)"; export K8S_PATIENCE=9; k8s-lab env --tfvars >lab.auto.tfvars.json; `
	step("apply", func(t *testing.T) {
		sh(t, "apply", terraform+"terraform apply -auto-approve -input=false -no-color 2>&1")
	})
	step("second plan is empty", func(t *testing.T) {
		sh(t, "plan", terraform+"terraform plan -detailed-exitcode -input=false -no-color 2>&1")
	})
	step("a pod on each node", func(t *testing.T) {
		out := sh(t, "pods", terraform+`
			k8s-kubeconfig --cluster demo --endpoint "$(terraform output -raw endpoint)" --output kubeconfig
			kubectl() { "$(ls /root/.cache/k8s-lab/mirror/dl.k8s.io/release/v`+harness.KubernetesVersion+`/bin/linux/amd64/kubectl)" --kubeconfig kubeconfig "$@"; }
			kubectl apply -f - <<-'END'
			`+strings.ReplaceAll(harness.Web, "\n", "\n\t\t\t")+`
			END
			kubectl rollout status deployment/web --timeout=20m
			kubectl get nodes,pods -o wide
			kubectl logs deployment/web`)
		if !strings.Contains(out, "started") || strings.Count(out, "1/1") != 2 {
			t.Errorf("nodes, pods and the log of one:\n%s", out)
		}
	})
	step("destroy and down leave nothing", func(t *testing.T) {
		sh(t, "destroy", terraform+"terraform destroy -auto-approve -input=false -no-color 2>&1")
		if out := sh(t, "status", "k8s-lab status"); !strings.Contains(out, "Instances: none") {
			t.Errorf("after destroy:\n%s", out)
		}
		sh(t, "down", "k8s-lab down 2>&1")
		if after := sh(t, "what is there after", left); after != before {
			t.Errorf("before up there was\n%s\nafter down\n%s", before, after)
		}
	})
	step("the host goes", func(t *testing.T) {
		c.CollectCover(t, host, "/root/cover")
		c.Destroy(t)
	})
	t.Logf("figures: up %s, apply %s, plan %s, destroy %s, down %s", took["up"], took["apply"], took["plan"], took["destroy"], took["down"])
}

// provide copies programs, the cache and the configuration to the host.
func provide(t *testing.T, c *harness.Cluster) {
	t.Helper()
	c.Sh(t, host, `set -eu
		mkdir -p /root/bin /root/cover /root/work /root/.cache/k8s-lab/images
		ssh-keygen -q -t ed25519 -N '' -f /root/ssh_key
		cat >/root/terraformrc <<'END'
`+terraformrc+`
END
		printf '%s\n' 'controllers = 1' 'workers = 1' >/root/work/one.auto.tfvars
		cat >/root/work/slow_override.tf <<'END'
`+slow+`
END`)
	example := filepath.Join(suite.Root, "examples", "ha-cluster")
	copyTo(t, c, "/root/work", example, files(t, example, "*.tf")...)
	copyTo(t, c, "/root", filepath.Join(suite.Root, "scripts"), "deps.sh")
	copyTo(t, c, "/root/bin", suite.Bin, files(t, suite.Bin, "*")...)
	cli := harness.Must[string](t)(filepath.EvalSymlinks(suite.CLI))
	copyTo(t, c, "/root/bin", filepath.Dir(cli), filepath.Base(cli))
	c.Sh(t, host, "test -e /root/bin/terraform || ln -s "+filepath.Base(cli)+" /root/bin/terraform")
	var parts []string
	for _, name := range files(t, suite.Cache, "*") {
		switch name {
		case "images", "labs", "lock", "archive", "cilium", "cilium-index.json": // others write to them, or they are not needed
		default:
			parts = append(parts, name)
		}
	}
	copyTo(t, c, "/root/.cache/k8s-lab", suite.Cache, parts...)
	for _, release := range machine.Releases {
		image, present, err := machine.LocateImage(suite.Cache, release, machine.Container)
		if err != nil {
			t.Fatal(err)
		}
		if present { // else the lab makes it, which takes long
			copyTo(t, c, "/root/.cache/k8s-lab/images", filepath.Dir(image.Dir), filepath.Base(image.Dir))
		}
	}
}

// files returns the names of the files of a directory that match a pattern.
func files(t *testing.T, dir, pattern string) (names []string) {
	t.Helper()
	for _, path := range harness.Must[[]string](t)(filepath.Glob(filepath.Join(dir, pattern))) {
		names = append(names, filepath.Base(path))
	}
	return names
}

// copyTo copies files and directories below a directory here to one on the host.
func copyTo(t *testing.T, c *harness.Cluster, to, dir string, names ...string) {
	t.Helper()
	tar := exec.CommandContext(t.Context(), "tar", append([]string{"-C", dir, "--sparse", "-cf", "-"}, names...)...)
	from := harness.Must[io.ReadCloser](t)(tar.StdoutPipe())
	if err := tar.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Minute)
	defer cancel()
	if err := c.Send(ctx, host, from, "tar -C "+to+" -xf -"); err != nil {
		t.Fatal(err)
	}
	if err := tar.Wait(); err != nil {
		t.Fatalf("tar %v: %v", names, err)
	}
}
