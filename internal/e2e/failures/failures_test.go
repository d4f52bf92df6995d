package failures_test

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

const (
	poolFailed    = "Cannot apply the worker pool"
	controlFailed = "Cannot apply the control plane"
	etcdFailed    = "Cannot apply the etcd cluster"
	addonFailed   = "Cannot apply the addon greeter"
	// podFails is how long a pod may fail, plus the time until its first failure.
	podFails = 35 * time.Second
)

var failures = []failure{
	{
		title: "The SSH key is not the one of the machines",
		with: func(t *testing.T, w *world) {
			w.changed(t)
			key := filepath.Join(t.TempDir(), "key")
			if err := workspace.SSHKey(key); err != nil {
				t.Fatal(err)
			}
			w.setenv("K8S_SSH_PRIVATE_KEY_FILE", key)
		},
		summary: controlFailed,
		says:    []string{"machine controller-0", `SSH login as "admin" refused`, "keys offered: SHA256:", "Give the provider the private key"},
	},
	{
		title:   "A machine cannot be reached",
		with:    func(t *testing.T, w *world) { w.changed(t) },
		args:    []string{`-var=admin_cidrs=["203.0.113.77/32"]`},
		summary: controlFailed,
		says:    []string{"left as they are, because they could not be reached: controller-0", "no answer within 10s", "admin_cidrs"},
		waits:   20 * time.Second, // a connect timeout, after a change of the security groups
	},
	{
		title: "A port between two machines is blocked",
		with: func(t *testing.T, w *world) {
			w.changed(t)
			w.hurt(t, "controller-0", "iptables -I OUTPUT -p tcp --dport 2379 -j DROP", "iptables -D OUTPUT -p tcp --dport 2379 -j DROP")
		},
		args:    []string{"-refresh=false"},
		summary: controlFailed,
		says:    []string{"machine controller-0: reach etcd", ":2379 does not answer within 5s", "nothing has been changed", "next: let it through in the security groups"},
		waits:   10 * time.Second, // five seconds for each attempt to connect
	},
	{
		title: "The disk of a machine is full",
		with: func(t *testing.T, w *world) {
			w.lost(t)
			w.hurt(t, "worker-0", "mount -t tmpfs -o size=1m,mode=700 tmpfs /var/cache/k8s-from-scratch", "umount /var/cache/k8s-from-scratch")
		},
		summary: poolFailed,
		says: []string{"machine worker-0: download kube-proxy", "KiB and", "inodes are free on /var/cache/k8s-from-scratch (tmpfs)",
			"df -h", "Make room on worker-0"},
		waits: 10 * time.Second, // attempts to download
	},
	{
		title: "The artifact mirror does not answer",
		with: func(t *testing.T, w *world) {
			w.lost(t)
			mirror, err := url.Parse(suite.Getenv("K8S_ARTIFACT_MIRROR"))
			if err != nil {
				t.Fatal(err)
			}
			w.setenv("K8S_ARTIFACT_MIRROR", "http://"+mirror.Hostname()+":9") // where nothing listens
		},
		summary: poolFailed,
		says:    []string{"machine worker-0: download kube-proxy", "Failed to connect", "next: ssh admin@", "curl --verbose --head http://", "artifact_mirror"},
		waits:   10 * time.Second, // attempts to download
	},
	{
		title: "A checksum does not match",
		with: func(t *testing.T, w *world) {
			w.lost(t)
			suite.MustLab(t, "fault", "mirror", "path=/dl.k8s.io/release/v"+harness.KubernetesVersion+"/bin/linux/amd64/kube-proxy", "fault=flip")
			t.Cleanup(func() { suite.MustLab(t, "fault", "clear") })
		},
		summary: poolFailed,
		says:    []string{"machine worker-0: download kube-proxy", "checksum mismatch: wanted sha256", "nothing was installed", "artifact_checksums is out of date"},
		waits:   10 * time.Second, // attempts to download
	},
	{
		title: "A port is taken on a machine",
		long:  true,
		with: func(t *testing.T, w *world) {
			w.hurt(t, "controller-0", "systemctl stop kube-apiserver && systemd-run --quiet --unit=other socat -u TCP-LISTEN:6443,fork /dev/null", "systemctl stop other")
		},
		summary: controlFailed,
		says: []string{"machine controller-0: start kube-apiserver.service", "port 6443 is taken by socat (process", "of other.service)",
			"last lines of the journal of kube-apiserver.service", "bind: address already in use", "next: ssh admin@"},
		waits: 30 * time.Second, // systemd's attempts to start it
	},
	{
		title: "A pod crash-loops",
		with: func(t *testing.T, w *world) {
			w.anew(t, addon("k8s-lab/toolbox:1", "echo listening on port 8080; echo cannot read /etc/greeter.yaml; exit 3"))
		},
		summary: addonFailed,
		says: []string{"Deployment default/greeter: 0 of 1 updated replicas are available", "pod default/greeter-", "on worker-0, container greeter: CrashLoopBackOff",
			"exit code 3 (Error)", "last lines of the log of greeter: listening on port 8080 cannot read /etc/greeter.yaml", "kubectl --namespace default describe pod greeter-"},
		waits: podFails, backsOff: true,
	},
	{
		title: "No pod starts on a node",
		with: func(t *testing.T, w *world) {
			// Without a kubelet the node is not drained, since there is no other node to drain to.
			w.hurt(t, "worker-0", "systemctl stop kubelet", "systemctl stop kubelet")
			w.write(t, "zz_override.tf", "resource \"k8s_worker_pool\" \"this\" {\n  sandbox_image = \"registry.k8s.io/no-such-pause:1\"\n}\n")
		},
		summary: poolFailed,
		says: []string{"machine worker-0: start a pod: the node is up, and no pod starts there", "FailedCreatePodSandBox", "registry.k8s.io/no-such-pause:1", "not found",
			"it is closed to new pods until one starts there", "journalctl --unit containerd.service"},
		waits: podFails,
	},
	{
		title:   "An image cannot be pulled",
		long:    true,
		with:    func(t *testing.T, w *world) { w.anew(t, addon("k8s-lab/no-such-image:1", "exit 0")) },
		summary: addonFailed,
		says: []string{"Deployment default/greeter: 0 of 1 updated replicas are available", "pod default/greeter-", "on worker-0, container greeter: ", "ErrImagePull: ",
			"k8s-lab/no-such-image:1", "not found", "kubectl --namespace default describe pod greeter-"},
		waits: podFails, backsOff: true,
	},
	{
		title: "etcd has lost its quorum",
		long:  true,
		with: func(t *testing.T, w *world) {
			for _, m := range []string{"controller-1", "controller-2"} {
				w.hurt(t, m, "systemctl stop etcd && mv /var/lib/etcd/member /var/lib/etcd/away", "mv /var/lib/etcd/away /var/lib/etcd/member")
			}
		},
		summary: etcdFailed,
		says:    []string{"lost its quorum", "members with data: controller-0", "without: controller-1, controller-2", "restore the cluster with restore_from of k8s_etcd_cluster"},
		waits:   time.Minute, // for members that may return, and in each refresh for etcd's answer
	},
	{
		title: "The clocks differ",
		with: func(t *testing.T, w *world) {
			w.changed(t)
			harness.MoveClock(w.WS, time.Hour)
		},
		summary: controlFailed,
		says:    []string{"machine controller-0: compare the clocks", "behind this computer's", "not yet valid", "nothing has been changed", "timedatectl"},
	},
	{
		title:   "AWS does not accept the credentials",
		with:    func(_ *testing.T, w *world) { w.setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret") },
		command: "plan",
		summary: "Cannot refresh network demo",
		says:    []string{"SignatureDoesNotMatch", "aws sts get-caller-identity"},
	},
	{
		title: "The quota for instances is used up",
		with: func(t *testing.T, _ *world) {
			refuse(t, "RunInstances", "VcpuLimitExceeded",
				"You have requested more vCPU capacity than your current vCPU limit of 32 allows for the instance bucket that the specified instance type belongs to.")
		},
		args:    []string{"-var=workers=2"},
		summary: "Cannot make machine worker-1",
		says:    []string{"machine worker-1: launch t3.medium", "RunInstances", "VcpuLimitExceeded", "current vCPU limit of 32", "terminate some", "Service Quotas, Amazon EC2, Running On-Demand Standard instances (L-1216C47A"},
	},
	{
		title: "The quota for Elastic IPs is used up",
		with: func(t *testing.T, w *world) {
			w.more(t, secondBalancer)
			refuse(t, "AllocateAddress", "AddressLimitExceeded", "The maximum number of addresses has been reached.")
		},
		summary: "Cannot apply the Elastic IP",
		says:    []string{"with k8s_lb.second", "allocate an Elastic IP for lb of cluster second", "AllocateAddress", "AddressLimitExceeded", "release one", "Service Quotas, Amazon EC2, EC2-VPC Elastic IPs (L-0263D0A3)"},
	},
	{
		title: "The quota for VPCs is used up",
		with: func(t *testing.T, w *world) {
			w.more(t, secondNetwork)
			refuse(t, "CreateVpc", "VpcLimitExceeded", "The maximum number of VPCs has been reached.")
		},
		summary: "Cannot make network second",
		says:    []string{"with k8s_network.second", "create VPC 10.240.0.0/16", "CreateVpc", "VpcLimitExceeded", "delete one", "vpc_id", "Service Quotas, Amazon VPC, VPCs per Region (L-F678F1CE)"},
	},
}

// secondBalancer and secondNetwork are the beginnings of a second cluster.
const (
	secondBalancer = `
resource "k8s_pki" "second" {
  cluster   = "second"
  key_store = "ssm"
}

resource "k8s_lb" "second" {
  host        = k8s_machine.controller[1].host
  controllers = [k8s_machine.controller[2].host]
  pki         = k8s_pki.second.ref
}
`
	secondNetwork = `
resource "k8s_network" "second" {
  cluster     = "second"
  admin_cidrs = var.admin_cidrs
}
`
)

// addon is a Deployment of one pod that runs a script.
func addon(image, script string) string {
	return fmt.Sprintf(`
resource "k8s_addon" "greeter" {
  name          = "greeter"
  control_plane = k8s_control_plane.this.ref
  manifests = [yamlencode({
    apiVersion = "apps/v1"
    kind       = "Deployment"
    metadata   = { name = "greeter", namespace = "default" }
    spec = {
      minReadySeconds = 10 # a pod that fails may be ready for a moment
      selector        = { matchLabels = { app = "greeter" } }
      template = {
        metadata = { labels = { app = "greeter" } }
        spec = { containers = [{ name = "greeter", image = %q, command = ["sh", "-c", %q] }] }
      }
    }
  })]
}
`, image, script)
}

// changed configures a changed control plane and worker pool until the test ends.
func (w *world) changed(t *testing.T) {
	t.Helper()
	w.write(t, "zz_override.tf", changes)
}

// anew configures an addon until the test ends. The objects of a failed create stay in the cluster,
// and the next create would adopt them; so they are deleted.
func (w *world) anew(t *testing.T, addon string) {
	t.Helper()
	w.Kubectl(t, "delete", "deployment", "greeter", "--ignore-not-found", "--cascade=foreground", "--timeout=60s")
	w.more(t, addon)
}

// more configures additional resources until the test ends.
func (w *world) more(t *testing.T, resources string) {
	t.Helper()
	w.write(t, "more.tf", resources)
}

// write adds to the configuration until the test ends.
func (w *world) write(t *testing.T, file, content string) {
	t.Helper()
	write := func(content string) {
		if err := w.WS.WriteFile(file, content); err != nil {
			t.Fatal(err)
		}
	}
	write(content)
	t.Cleanup(func() { write("") })
}

// refuse makes EC2 refuse an action until the test ends.
func refuse(t *testing.T, action, code, message string) {
	t.Helper()
	suite.MustLab(t, "fault", "fail", "action="+action, "code="+code, "message="+message)
	t.Cleanup(func() { suite.MustLab(t, "fault", "clear") })
}

// lost deletes a program on the worker, which apply then has to download.
func (w *world) lost(t *testing.T) {
	t.Helper()
	suite.Console(t, "worker-0", "rm /usr/local/bin/kube-proxy")
}

// hurt runs a script on a machine, and another one when the test ends.
func (w *world) hurt(t *testing.T, machine, script, undo string) {
	t.Helper()
	suite.Console(t, machine, script)
	t.Cleanup(func() {
		if _, err := suite.TryConsole(context.WithoutCancel(t.Context()), machine, undo); err != nil {
			t.Error(err)
		}
	})
}

func (w *world) setenv(name, value string) {
	w.WS.Env = append(w.WS.Env[:len(w.WS.Env):len(w.WS.Env)], name+"="+value)
}
