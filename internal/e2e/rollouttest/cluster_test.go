package rollouttest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

var (
	balancer    = machineWanted{"lb-0", aws.RoleLoadBalancer, "10.240.0.40", ""}
	controller0 = machineWanted{"controller-0", aws.RoleController, "10.240.0.10", ""}
	controller1 = machineWanted{"controller-1", aws.RoleController, "10.240.0.11", ""}
	controller2 = machineWanted{"controller-2", aws.RoleController, "10.240.0.12", ""}
	worker0     = machineWanted{"worker-0", aws.RoleWorker, "10.240.0.20", "10.200.0.0/24"}
	worker1     = machineWanted{"worker-1", aws.RoleWorker, "10.240.0.21", "10.200.1.0/24"}
)

// all also runs what tests with Terraform cover (make soak PART=rollouts).
var all = os.Getenv("K8S_ROLLOUTS") != ""

// TestControllers covers etcd, the control plane and the load balancer.
func TestControllers(t *testing.T) {
	w := newWorld(t, "") // the applies that are interrupted must have something to install
	start := time.Now()
	targets := w.launchAll(balancer, controller0, controller1, controller2)
	t.Logf("%-22s %6.2f s", "machines", time.Since(start).Seconds())
	d := w.deploy(targets[0], targets[1:4], nil)
	w.stage("interrupted first apply", func() error { return d.interrupted(6) })
	d.firstApply()
	d.eventually("status", func() error {
		s, err := d.status()
		if err == nil && (len(s.APIServers) != 3 || len(s.Etcd) != 3 || len(s.Leases) != 2 || len(s.Nodes) != 0 || s.Version != "v"+kubernetesVersion || len(s.Certificates) == 0) {
			err = fmt.Errorf("incomplete: %+v", s)
		}
		return err
	})
	before := d.starts()
	w.stage("apply again", func() error { return d.apply(t.Context(), d) })
	if r := harness.Restarted(before, d.starts()); len(r) > 0 {
		t.Errorf("applying again restarted %q", r)
	}
	t.Run("lost records", func(t *testing.T) { d.on(t).testLostRecords() })
	if all {
		t.Run("damage", func(t *testing.T) { d.on(t).testControllerDamage() })
		t.Run("wrong flag", func(t *testing.T) { d.on(t).testWrongFlag() })
		t.Run("failing change", func(t *testing.T) { d.on(t).testFailingChange() })
		t.Run("certificates", func(t *testing.T) { d.on(t).testCertificates() })
		t.Run("unreachable", func(t *testing.T) { d.on(t).testUnreachable() })
	}
	t.Run("a member returns", func(t *testing.T) { d.on(t).testReturn() })
	t.Run("scale to one", func(t *testing.T) { d.on(t).testScaleToOne() })
	t.Run("removal", func(t *testing.T) { d.on(t).testRemoval() })
	t.Run("the program of the guide", func(t *testing.T) { d.on(t).testProgram() })
}

// on returns the deployment for a subtest.
func (d *deployment) on(t *testing.T) *deployment {
	d.t = t
	return d
}

func (d *deployment) firstApply() {
	d.t.Helper()
	ctx := d.t.Context()
	d.stage("load balancer", func() (err error) {
		d.lbRecord, err = d.engine.Apply(ctx, d.lb, nil, d.lbRecord)
		return err
	})
	d.stage("etcd", func() (err error) {
		d.etcdRecord, err = d.engine.Apply(ctx, d.etcd, nil, d.etcdRecord)
		return err
	})
	d.stage("control plane", func() (err error) {
		d.controlRecord, err = d.engine.Apply(ctx, d.control, nil, d.controlRecord)
		return err
	})
	if len(d.workers.Targets) > 0 {
		d.stage("workers", func() (err error) {
			d.workerRecord, err = d.engine.Apply(ctx, d.workers, nil, d.workerRecord)
			return err
		})
	}
	d.stage("observe", func() error { d.noDrift("after the first apply"); return nil })
}

// interrupted starts the first apply n times and interrupts it at a random moment, later on average
// each time. It drops the record, as a killed process does. K8S_ROLLOUT_SEED repeats the moments of
// an earlier run.
func (d *deployment) interrupted(n int) error {
	seed := time.Now().UnixNano()
	if s := os.Getenv("K8S_ROLLOUT_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseInt(s, 10, 64); err != nil {
			return fmt.Errorf("K8S_ROLLOUT_SEED: %w", err)
		}
	}
	d.t.Logf("interruptions: K8S_ROLLOUT_SEED=%d", seed)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	for i := range n {
		// Cancelled instead of given a deadline, so that nothing can prepare for the end.
		ctx, cancel := context.WithCancel(d.t.Context())
		killer := time.AfterFunc(time.Duration(random.Int64N(int64(i+1)*3000))*time.Millisecond, cancel)
		killed := *d
		err := killed.apply(ctx, nil)
		inTime := killer.Stop()
		cancel()
		if inTime && err != nil {
			return fmt.Errorf("interruption %d, which came too late: %w", i, err)
		}
	}
	return nil
}

func (d *deployment) expectDrift(prefixes ...string) {
	d.t.Helper()
	drift := d.drift()
	slices.Sort(drift)
	slices.Sort(prefixes)
	ok := len(drift) == len(prefixes)
	for i := range min(len(drift), len(prefixes)) {
		ok = ok && strings.HasPrefix(drift[i], prefixes[i])
	}
	if !ok {
		d.t.Errorf("drift:\n  %s\nwanted lines beginning with:\n  %s", strings.Join(drift, "\n  "), strings.Join(prefixes, "\n  "))
	}
}

// repair applies and checks that exactly the given units were restarted.
func (d *deployment) repair(before map[string]harness.Unit, want ...string) {
	d.t.Helper()
	d.stage("repair", func() error { return d.apply(d.t.Context(), d) })
	d.noDrift("after the repair")
	got := harness.Restarted(before, d.starts(), want...)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		d.t.Errorf("restarted %q, wanted %q", got, want)
	}
}

// testControllerDamage changes several machines at once by hand, and checks that exactly that is
// reported and repaired.
func (d *deployment) testControllerDamage() {
	before := d.starts()
	d.shell(d.etcd.Targets[1], "systemctl stop etcd")
	d.shell(d.control.Targets[0], "sed -i s/VersionTLS12/VersionTLS13/ /etc/systemd/system/kube-scheduler.service && systemctl daemon-reload")
	d.shell(d.control.Targets[2], "systemctl disable kube-controller-manager 2>/dev/null; echo x >> /etc/kubernetes/audit-policy.yaml")
	d.shell(d.lb.Targets[0], "rm /etc/haproxy/haproxy.cfg")
	c := d.api()
	if err := c.Typed().RbacV1().ClusterRoleBindings().Delete(d.t.Context(), component.ControlPlaneSpec{}.SystemObjects()[1].GetName(), metav1.DeleteOptions{}); err != nil {
		d.t.Fatal(err)
	}
	d.expectDrift(
		"control ClusterRoleBinding "+component.ControlPlaneSpec{}.SystemObjects()[1].GetName()+": missing",
		"control controller-0: file /etc/systemd/system/kube-scheduler.service: content differs",
		"control controller-2: file /etc/kubernetes/audit-policy.yaml: content differs",
		"etcd controller-1: unit etcd.service: stopped, wanted running",
		"lb lb-0: file /etc/haproxy/haproxy.cfg: missing",
	)
	d.repair(before, "controller-0/kube-scheduler", "controller-1/etcd", "controller-2/kube-apiserver")
}

// testLostRecords drops all records, as an import does. There is no drift, nothing restarts, and
// certificates are kept.
func (d *deployment) testLostRecords() {
	before := d.starts()
	digest := "sha256sum /etc/kubernetes/pki/* /etc/etcd/pki/* /etc/kubernetes/encryption-config.yaml"
	files := d.shell(d.control.Targets[0], digest)
	d.etcdRecord, d.controlRecord, d.lbRecord = rollout.Record{}, rollout.Record{}, rollout.Record{}
	d.noDrift("without records")
	d.repair(before)
	if now := d.shell(d.control.Targets[0], digest); now != files {
		d.t.Errorf("certificates and secrets changed:\n%s\nnow\n%s", files, now)
	}
	// A key that does not belong to the certificate cannot be detected by observing, only by
	// applying.
	d.controlRecord = rollout.Record{}
	d.shell(d.control.Targets[1], "cp /etc/kubernetes/pki/kube-scheduler.key /etc/kubernetes/pki/kube-controller-manager.key")
	d.stage("adopt", func() error { return d.apply(d.t.Context(), d) })
	out := d.shell(d.control.Targets[1], "cd /etc/kubernetes/pki; cmp -s kube-scheduler.key kube-controller-manager.key && echo same || echo differ")
	if out != "differ" {
		d.t.Error("a key that was not the certificate's was adopted")
	}
}

// testWrongFlag makes a change that cannot work. It fails soon, says why, and stops and changes
// nothing.
func (d *deployment) testWrongFlag() {
	before := d.starts()
	prior := *d
	for _, tt := range []struct {
		name   string
		change func(*deployment)
	}{
		{"kube-apiserver", func(x *deployment) {
			x.control.Spec.APIServer.Args = component.SingleArgs(map[string]string{"no-such-flag": "1"})
		}},
		{"kube-scheduler", func(x *deployment) {
			x.control.Spec.Scheduler.Args = component.SingleArgs(map[string]string{"no-such-flag": "1"})
		}},
		{"etcd", func(x *deployment) {
			x.etcd.Spec.Args = component.SingleArgs(map[string]string{"no-such-flag": "1"})
		}},
	} {
		wrong := *d
		tt.change(&wrong)
		start := time.Now()
		err := wrong.apply(d.t.Context(), &prior)
		if err == nil || !strings.Contains(err.Error(), "no-such-flag") || !strings.Contains(err.Error(), "controller-") || !strings.Contains(err.Error(), tt.name) {
			d.t.Errorf("%s: error = %v, wanted the machine and the reason", tt.name, err)
		}
		if took := time.Since(start); took > 15*time.Second {
			d.t.Errorf("%s: it took %s to fail", tt.name, took)
		}
	}
	d.noDrift("after refusals")
	if r := harness.Restarted(before, d.starts()); len(r) > 0 {
		d.t.Errorf("restarted %q", r)
	}
	if out := d.shell(d.control.Targets[0], "ls /run/systemd/system | grep rehearsal || :"); out != "" {
		d.t.Errorf("left behind: %s", out)
	}
}

// testFailingChange makes a change that only fails once etcd is reached. The roll stops at the
// first machine, and the next apply continues.
func (d *deployment) testFailingChange() {
	before := d.starts()
	prior := *d
	d.control.Spec.APIServer.Args = component.SingleArgs(map[string]string{"etcd-prefix": "/other", "proxy-client-cert-file": "/nowhere"})
	start := time.Now()
	err := d.apply(d.t.Context(), &prior)
	if err == nil || !strings.Contains(err.Error(), "/nowhere") || !strings.Contains(err.Error(), "controller-0") || !strings.Contains(err.Error(), "next: ssh ") {
		d.t.Errorf("error = %v, wanted the machine, the journal and what to do", err)
	}
	if took := time.Since(start); took > 30*time.Second {
		d.t.Errorf("it took %s to fail", took)
	}
	for _, unit := range harness.Restarted(before, d.starts(), "controller-0/kube-apiserver") {
		if unit != "controller-0/kube-apiserver" {
			d.t.Errorf("%s was restarted too", unit)
		}
	}
	d.control.Spec.APIServer.Args = prior.control.Spec.APIServer.Args
	d.repair(before, "controller-0/kube-apiserver")
}

// testCertificates moves the clock to when leaf certificates are due for renewal, and replaces one
// by a certificate of another authority.
func (d *deployment) testCertificates() {
	before := d.starts()
	d.fleet.Clock = func() time.Time { return time.Now().Add(pki.DefaultValidity - pki.DefaultEarlyRenewal + time.Hour) }
	defer func() { d.fleet.Clock = nil }()
	drift := d.drift()
	if len(drift) < 6 || !strings.Contains(strings.Join(drift, "\n"), "due for renewal") {
		d.t.Errorf("drift when certificates are due:\n%s", strings.Join(drift, "\n"))
	}
	d.fleet.Clock = nil
	d.shell(d.control.Targets[0], "cp /etc/kubernetes/pki/front-proxy-client.crt /etc/kubernetes/pki/apiserver-etcd-client.crt")
	d.expectDrift("control controller-0: file /etc/kubernetes/pki/apiserver-etcd-client.crt: content differs")
	d.repair(before)
}

// testUnreachable cuts off a controller. The plan reports only that, and an apply changes only what
// is safe.
func (d *deployment) testUnreachable() {
	cut := d.control.Targets[2]
	good := slices.Clone(d.control.Targets)
	bad := slices.Clone(good)
	bad[2].Host.Address = "203.0.113.1" // nothing answers there
	d.etcd.Targets, d.control.Targets = bad, bad
	pool := d.fleet.Pool
	d.fleet.Pool = remote.NewPool(remote.Config{Signers: []ssh.Signer{d.signer}, ConnectTimeout: 3 * time.Second})
	defer func() {
		_ = d.fleet.Pool.Close()
		d.etcd.Targets, d.control.Targets, d.fleet.Pool = good, good, pool
	}()
	start := time.Now()
	for _, line := range d.drift() {
		if !strings.Contains(line, cut.Node.Name+" unreachable") {
			d.t.Errorf("drift: %s", line)
		}
	}
	if took := time.Since(start); took > 30*time.Second {
		d.t.Errorf("looking took %s", took)
	}
	d.shell(good[0], "echo x >> /etc/kubernetes/kube-scheduler.yaml")
	err := d.apply(d.t.Context(), d)
	var left *fleet.SkippedError
	if !errors.As(err, &left) || left.Machines[cut.Node.Name] == nil {
		d.t.Errorf("apply = %v, wanted to be told what was left", err)
	}
	var gone *remote.UnreachableError
	if !errors.As(err, &gone) {
		d.t.Errorf("apply = %v, wanted the reason", err)
	}
	d.controlRecord, err = d.engine.Apply(d.t.Context(), d.control, d.control, d.controlRecord)
	if !errors.As(err, &left) {
		d.t.Errorf("apply = %v", err)
	}
	if out := d.shell(good[0], "tail -n 1 /etc/kubernetes/kube-scheduler.yaml"); out == "x" {
		d.t.Error("the machine that could be reached was not repaired")
	}
	d.etcd.Targets, d.control.Targets = good, good
	d.noDrift("after the machine came back")
}

// testScaleToOne removes two controllers from the running cluster.
func (d *deployment) testScaleToOne() {
	prior := *d
	d.setControllers(d.control.Targets[:1])
	d.stage("scale to one", func() error { return d.apply(d.t.Context(), &prior) })
	d.noDrift("after scaling")
	if s, err := d.status(); err != nil || len(s.Etcd) != 1 {
		d.t.Errorf("status = %+v, %v", s, err)
	}
	out := d.shell(prior.control.Targets[1], "ls -d /var/lib/etcd/* /usr/local/bin/kube-apiserver /etc/systemd/system/etcd.service 2>/dev/null | grep -v /lost+found || :; systemctl is-active etcd kube-apiserver || :")
	if strings.Contains(out, "/") || strings.HasPrefix(out, "active") {
		d.t.Errorf("left on a machine that is no controller any more: %q", out)
	}
}

func (d *deployment) testRemoval() {
	ctx := d.t.Context()
	d.stage("remove", func() error {
		return errors.Join(d.remove(ctx, d.control, d.controlRecord), d.remove(ctx, d.etcd, d.etcdRecord),
			d.remove(ctx, d.lb, d.lbRecord))
	})
	out := d.shell(d.control.Targets[0], "ls /etc/kubernetes/pki /var/lib/etcd /etc/systemd/system/kube-* 2>/dev/null || :")
	if strings.Contains(out, "key") || strings.Contains(out, "member") || strings.Contains(out, "service") {
		d.t.Errorf("left behind: %q", out)
	}
}
