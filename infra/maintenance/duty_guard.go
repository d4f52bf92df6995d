package maintenance

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
)

// going is how a machine goes.
type going int

const (
	restarts going = iota // it is stopped and comes back
	moves                 // it ends, and another machine starts its etcd member again
	leaves                // it ends, and its etcd member leaves the cluster
	followed              // as leaves, and another machine without its data takes its place
)

// removes reports whether the etcd member leaves the cluster.
func (g going) removes() bool { return g == leaves || g == followed }

// guard returns an error if the cluster cannot work without the machine. If the machine ends, an
// etcd member that an interrupted change has stopped still counts, since it will not be started
// again.
func (d *Duty) guard(ctx context.Context, how going, leaving func(string) bool) error {
	if d.does(component.EtcdUnit) || how != restarts && d.had(component.EtcdUnit) {
		if err := d.guardEtcd(ctx, how, leaving); err != nil {
			return err
		}
	}
	if d.does(component.APIServerUnit) {
		return d.guardAPI(ctx, how, leaving)
	}
	return nil
}

// what describes the request.
func (d *Duty) what(how going) string {
	if how != restarts {
		return "terminate " + d.m.Name()
	}
	return "stop " + d.m.Name()
}

// guardEtcd checks that the other etcd members are healthy and a quorum.
func (d *Duty) guardEtcd(ctx context.Context, how going, leaving func(string) bool) error {
	refuse := func(reason, advice string) error {
		return &fleet.GuardError{Refused: d.what(how), Reason: reason, Advice: advice}
	}
	p, err := d.knownPlace(ctx, leaving)
	if err != nil && !d.does(component.EtcdUnit) {
		return refuse(fmt.Sprintf("its etcd member was stopped by an interrupted change, and no other member says whether they have a quorum without it: %v", err),
			"its units are being started: apply again; if the machine is beyond repair, stop the instance first")
	}
	if err != nil {
		return refuse(fmt.Sprintf("etcd runs on it, and it is not known whether the other members have a quorum without it: %v", err),
			"repair it first; if it is beyond repair, stop its unit "+component.EtcdUnit+" yourself and apply again")
	}
	if err := d.guardAlarm(ctx, how, p.self); err != nil {
		return err
	}
	if how == followed && d.last(p) {
		return refuse("it has the last member of etcd, and its data would end with it",
			"apply k8s_etcd_cluster first, so that the other machines are members again, or destroy it; if nobody needs the data, stop the unit "+component.EtcdUnit+" on "+d.m.Name()+" yourself and apply again")
	}
	if len(p.others) == 0 || p.self.Learner || p.self.ID == 0 {
		return nil // no other voters are left, or this member is no voter
	}
	sick, err := fleet.UntilNone(ctx, fleet.GateBudget, string(fleet.GateOthers), func(ctx context.Context) []string {
		var sick []string
		healthy, alarms := d.ask(ctx, p.others, (*etcd.Client).Health)
		for _, m := range p.others {
			switch {
			case alarms[m.ID] != "":
				sick = append(sick, fmt.Sprintf("%s has the alarm %s", m.Label(), alarms[m.ID]))
			case !healthy[m.ID]:
				sick = append(sick, m.Label())
			}
		}
		return sick
	})
	if ctx.Err() != nil {
		return err
	}
	return checkVoters(d.what(how), how.removes(), p.voters, len(p.others), sick)
}

// last reports whether the machine may have the last voter that does not leave. If an interrupted
// change has stopped the member and there is no other member, nothing tells how many voters there
// are.
func (d *Duty) last(p place) bool {
	voter := p.self.ID != 0 && !p.self.Learner && p.self.Started()
	return len(p.others) == 0 && (voter || len(p.members) == 0)
}

// guardAlarm refuses to stop a member that has an alarm: it would not be healthy again after its
// start. It may leave, which is a way to be rid of the alarm.
func (d *Duty) guardAlarm(ctx context.Context, how going, self etcd.Member) error {
	if how.removes() || self.ID == 0 || !d.does(component.EtcdUnit) {
		return nil
	}
	_, alarms := d.ask(ctx, []etcd.Member{self}, (*etcd.Client).Health)
	if alarms[self.ID] == "" {
		return nil
	}
	return &fleet.GuardError{Refused: d.what(how), Reason: fmt.Sprintf("its etcd member has the alarm %s", alarms[self.ID]),
		Advice: "end the alarm first: take back the change of the machine and apply, so that k8s_etcd_cluster is repaired, then change the machine again"}
}

// checkVoters refuses to take a voter down if one of the voters that stay is unhealthy, or if they
// are not a quorum. The quorum is that of all voters if the member only stops, and of the remaining
// ones if it leaves.
func checkVoters(deed string, leaves bool, voters, others int, sick []string) error {
	cluster := voters
	if leaves {
		cluster--
	}
	healthy := others - len(sick)
	var reason string
	switch {
	case healthy < etcd.Quorum(cluster):
		reason = fmt.Sprintf("etcd would lose its quorum: %[2]d of %[1]d voters would be healthy, and a quorum is %[3]d", cluster, healthy, etcd.Quorum(cluster))
	case len(sick) > 0:
		reason = "a second etcd member would be down"
	default:
		return nil
	}
	if len(sick) > 0 {
		reason += fmt.Sprintf(" (not healthy: %s)", fleet.List(sick))
	}
	return &fleet.GuardError{Refused: deed, Reason: reason,
		Advice: "repair or bring back the other members first, and take machines down one at a time"}
}

// guardAPI checks that another API server is ready, if there are others. It checks nothing when the
// machine's own API server is not ready.
func (d *Duty) guardAPI(ctx context.Context, how going, leaving func(string) bool) error {
	c, _, err := d.api(component.ManagerKubeconfig, "")
	if err != nil {
		return d.fail("ask its API server for the other API servers", err)
	}
	defer c.Close()
	if err := c.Ready(ctx); err != nil {
		d.m.Say("maintenance: its API server is not ready: %v", err)
		return nil
	}
	others, err := d.otherAPIServers(ctx, c, leaving)
	if err != nil {
		return d.fail("ask its API server for the other API servers", err)
	}
	if len(others) == 0 {
		return nil
	}
	sick, err := fleet.UntilNone(ctx, fleet.GateBudget, "another API server to be ready", func(ctx context.Context) []string {
		var sick []string
		for _, ip := range others {
			err := d.apiServerReady(ctx, ip)
			if err == nil {
				return nil
			}
			sick = append(sick, fmt.Sprintf("%s: %v", ip, err))
		}
		return sick
	})
	if err == nil || ctx.Err() != nil {
		return err
	}
	return &fleet.GuardError{Refused: d.what(how), Reason: fmt.Sprintf("its API server is the only one that is ready (%s)", strings.Join(sick, "; ")),
		Advice: "bring back another one first, and take machines down one at a time"}
}

// otherAPIServers returns the addresses that API servers publish in the cluster, without this
// machine's and those of leaving machines.
func (d *Duty) otherAPIServers(ctx context.Context, c *kube.Client, leaving func(string) bool) ([]string, error) {
	ctx, cancel := fleet.Probing(ctx)
	defer cancel()
	announced, err := c.Typed().DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).List(ctx,
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=kubernetes"})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, s := range announced.Items {
		for _, e := range s.Endpoints {
			out = append(out, e.Addresses...)
		}
	}
	return slices.DeleteFunc(out, func(ip string) bool { return ip == d.m.Node.PrivateIP.String() || leaving(ip) }), nil
}

func (d *Duty) apiServerReady(ctx context.Context, ip string) error {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return err
	}
	c, _, err := d.api(component.ManagerKubeconfig, "https://"+netip.AddrPortFrom(addr, component.APIServerPort).String())
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Ready(ctx)
}
