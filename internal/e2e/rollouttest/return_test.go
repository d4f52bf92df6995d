package rollouttest

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// testReturn replaces the controller that leads etcd by a machine with another address. Its data
// follow, on a mount point. The member comes back as the same one, with what was written meanwhile.
func (d *deployment) testReturn() {
	ctx, prior := d.t.Context(), *d
	targets := slices.Clone(d.control.Targets)
	stays, old := targets[0], targets[1]
	etcdctl := func(t fleet.Target, args string) string { d.t.Helper(); return d.shell(t, harness.Etcdctl+args) }
	listed := func() string { // "id, started, controller-1, peer URL, client URL, is learner"
		for line := range strings.Lines(etcdctl(stays, "member list")) {
			if strings.Contains(line, ", controller-1, ") {
				return strings.TrimSpace(line)
			}
		}
		return ""
	}
	before := listed()
	id, _, _ := strings.Cut(before, ",")
	for _, t := range targets { // the leader does it
		d.shell(t, harness.Etcdctl+"move-leader "+id+" >/dev/null 2>&1 || :")
	}
	etcdctl(old, "put /test/before yes")
	start := time.Now()
	d.stage("step aside", func() error {
		duty, err := maintenance.Find(ctx, d.fleet, old)
		if err != nil {
			return err
		}
		duty.SetControllers(func(context.Context) ([]fleet.Target, error) { return targets, nil })
		return duty.StepAside(ctx, func(name string) bool { return name == old.Node.Name || name == old.Node.PrivateIP.String() })
	})
	if out := d.shell(old, "systemctl is-active etcd kube-apiserver || :"); strings.Contains(out+"\n", "\nactive\n") || strings.HasPrefix(out, "active") {
		d.t.Errorf("it runs on: %q", out)
	}
	if now := listed(); now != before {
		d.t.Errorf("the member was %q and is %q", before, now)
	}
	etcdctl(stays, "put /test/meanwhile yes")
	data, err := d.fleet.Pool.Machine(old.Host).Run(ctx, remote.Command{Script: "tar -C /var/lib/etcd -czSf - member", Sudo: true})
	d.must(err)

	d.stage("another machine", func() (err error) {
		gone := d.machines[old.Node.Name]
		if err := machine.Delete(ctx, d.aws, gone.ID, d.machineSpec(gone.Name, gone.Role, gone.PrivateIP, netip.Prefix{})); err != nil {
			return err
		}
		targets[1], err = d.launch(ctx, controller1.name, controller1.role, "10.240.0.14", "")
		return err
	})
	_, err = d.fleet.Pool.Machine(targets[1].Host).Run(ctx, remote.Command{
		Script: "mkdir -p /var/lib/etcd && mount -t tmpfs -o mode=755 none /var/lib/etcd && mkdir /var/lib/etcd/lost+found && tar -C /var/lib/etcd -xzf -",
		Stdin:  bytes.NewReader(data.Stdout), Sudo: true})
	d.must(err)
	d.setControllers(targets)
	d.stage("return", func() (err error) { // the control plane does not matter here, and takes longer
		d.etcdRecord, err = d.engine.Apply(ctx, d.etcd, prior.etcd, d.etcdRecord)
		return err
	})
	d.t.Logf("%-22s %6.2f s", "without the member", time.Since(start).Seconds())

	r, err := d.engine.Observe(ctx, d.etcd, d.etcdRecord)
	d.must(err)
	if len(r.Findings)+len(r.Unreachable)+len(r.Unjudged) > 0 {
		d.t.Errorf("after the return: %+v %+v %+v", r.Findings, r.Unreachable, r.Unjudged)
	}
	want := strings.ReplaceAll(before, old.Node.PrivateIP.String(), "10.240.0.14")
	if now := listed(); now != want {
		d.t.Errorf("the member is %q, wanted %q", now, want)
	}
	if n := strings.Count(etcdctl(stays, "member list"), "started"); n != 3 {
		d.t.Errorf("%d members", n)
	}
	d.eventually("what was written", func() error {
		for _, key := range []string{"/test/before", "/test/meanwhile"} {
			if got := etcdctl(targets[1], "get --consistency=s --print-value-only "+key); got != "yes" {
				return fmt.Errorf("%s is %q on the member that returned", key, got)
			}
		}
		return nil
	})
	if out := d.shell(targets[1], "stat -c %a /var/lib/etcd; ls -d /var/lib/etcd/lost+found"); out != "700\n/var/lib/etcd/lost+found" {
		d.t.Errorf("the mount point: %q", out)
	}
	for _, line := range d.progress {
		if strings.Contains(line, "controller-1: etcd: added as learner") || strings.Contains(line, "controller-1: etcd: promoted") {
			d.t.Errorf("it was made a new member: %s", line)
		}
	}
	etcdctl(stays, "del --prefix /test/")
}
