package rollouttest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

func TestCluster(t *testing.T) {
	w := newWorld(t)
	start := time.Now()
	targets := w.launchAll(
		machineWanted{"lb-0", aws.RoleLoadBalancer, "10.240.0.40", ""},
		machineWanted{"controller-0", aws.RoleController, "10.240.0.10", ""},
		machineWanted{"controller-1", aws.RoleController, "10.240.0.11", ""},
		machineWanted{"controller-2", aws.RoleController, "10.240.0.12", ""},
		machineWanted{"worker-0", aws.RoleWorker, "10.240.0.20", "10.200.0.0/24"},
		machineWanted{"worker-1", aws.RoleWorker, "10.240.0.21", "10.200.1.0/24"},
	)
	t.Logf("%-22s %6.2f s", "machines", time.Since(start).Seconds())
	d := w.deploy(targets[0], targets[1:4], targets[4:6])
	ctx := t.Context()
	w.stage("load balancer", func() (err error) { d.lbRecord, err = w.engine.ApplyLoadBalancer(ctx, d.lb, nil, d.lbRecord); return })
	w.stage("etcd", func() (err error) { d.etcdRecord, err = w.engine.ApplyEtcd(ctx, d.etcd, nil, d.etcdRecord); return })
	w.stage("control plane", func() (err error) { d.controlRecord, err = w.engine.ApplyControlPlane(ctx, d.control, nil, d.controlRecord); return })
	w.stage("workers", func() (err error) { d.workerRecord, err = w.engine.ApplyWorkers(ctx, d.workers, nil, d.workerRecord); return })
	w.stage("coredns", func() error { _, err := w.engine.ApplyObjects(ctx, d.dns, nil); return err })
	w.stage("observe", func() error { d.noDrift("after the first apply"); return nil })
	s, err := d.status()
	if err != nil {
		t.Error(err)
	}
	if len(s.Nodes) != 2 || len(s.APIServers) != 3 || len(s.Etcd) != 3 || len(s.Leases) != 2 || s.Version != "v"+kubernetesVersion {
		t.Errorf("status = %+v", s)
	}
	before := d.starts()
	w.stage("apply again", func() error { return d.apply(ctx, d) })
	if r := restarted(before, d.starts()); len(r) > 0 {
		t.Errorf("applying again restarted %q", r)
	}
	t.Run("damage", func(t *testing.T) { testDamage(t, d) })
}

// testDamage damages several machines at once by hand, and expects to be told
// exactly that, and to have exactly that repaired.
func testDamage(t *testing.T, d *deployment) {
	d.t = t
	before := d.starts()
	d.shell(d.etcd.Targets[1], "systemctl stop etcd")
	d.shell(d.control.Targets[0], "sed -i 's/--profiling=false/--profiling=true/' /etc/systemd/system/kube-scheduler.service && systemctl daemon-reload")
	d.shell(d.control.Targets[2], "systemctl disable kube-controller-manager 2>/dev/null; echo x >> /etc/kubernetes/audit-policy.yaml")
	d.shell(d.workers.Targets[0], "echo x >> /usr/local/bin/kube-proxy 2>/dev/null || { cp /usr/local/bin/kube-proxy /tmp/p && echo x >> /tmp/p && mv /tmp/p /usr/local/bin/kube-proxy; }")
	d.shell(d.lb.Targets[0], "rm /etc/haproxy/haproxy.cfg")

	drift := d.drift()
	slices.Sort(drift)
	want := []string{
		"control controller-0: file /etc/systemd/system/kube-scheduler.service",
		"control controller-2: file /etc/kubernetes/audit-policy.yaml",
		"etcd controller-1: unit etcd.service: stopped, wanted running",
		"lb lb-0: file /etc/haproxy/haproxy.cfg: missing",
		"workers worker-0: binary /usr/local/bin/kube-proxy",
	}
	if len(drift) != len(want) {
		t.Errorf("drift:\n%s", strings.Join(drift, "\n"))
	}
	for i := range min(len(drift), len(want)) {
		if !strings.HasPrefix(drift[i], want[i]) {
			t.Errorf("drift %q, wanted %q...", drift[i], want[i])
		}
	}
	d.stage("repair", func() error { return d.apply(t.Context(), d) })
	d.noDrift("after the repair")
	got := restarted(before, d.starts())
	slices.Sort(got)
	if want := []string{"controller-0 kube-scheduler", "controller-1 etcd", "controller-2 kube-apiserver", "worker-0 kube-proxy"}; !slices.Equal(got, want) {
		t.Errorf("restarted %q, wanted %q", got, want)
	}
}
