package session

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"sync"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// apiRelay chooses the machine through which the private endpoint of a cluster's API servers is reached:
// EC2 Instance Connect Endpoints lead to port 22 only. The endpoint's own machine comes first, then a
// controller. Its host key is the one in its tags, where k8s_machine has put it. Whoever could change that
// still has no certificate of the cluster's CA.
type apiRelay struct {
	data    *Session
	cluster string

	mu     sync.Mutex
	chosen map[string]remote.Host // by address or name
}

// dialer returns Dial of that machine. What the operation's context remembers of machines holds for it.
func (r *apiRelay) dialer(operation, ctx context.Context, address string) (remote.DialFunc, error) {
	to, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h, ok := r.chosen[to]
	if !ok {
		if h, err = r.choose(ctx, to); err != nil {
			return nil, err
		}
		if r.chosen == nil {
			r.chosen = map[string]remote.Host{}
		}
		r.chosen[to] = h
	}
	return r.data.Pool.Machine(h).Dialer(operation), nil
}

func (r *apiRelay) choose(ctx context.Context, to string) (remote.Host, error) {
	client, err := r.data.AWS(ctx)
	if err != nil {
		return remote.Host{}, err
	}
	found, err := awsmachine.FindAll(ctx, client, r.cluster)
	if err != nil {
		return remote.Host{}, err
	}
	at, _ := netip.ParseAddr(to) // a name is that of no machine
	m, ok := relayAmong(found, at)
	if !ok {
		return remote.Host{}, fmt.Errorf("the API servers of cluster %s at %s are reached through one of its machines, by SSH: no controller or load balancer of it runs", r.cluster, to)
	}
	h := remote.Host{Name: m.Name, User: cmp.Or(m.User, r.data.SSH.User), HostKeys: []string{m.HostKey}}
	return r.data.Way(h, m.PrivateIP.String(), m.ID), nil
}

// instanceRuns is the state of an instance that runs, as EC2 says it.
const instanceRuns = "running"

// relayAmong chooses among the machines of a cluster.
func relayAmong(found []awsmachine.Machine, to netip.Addr) (awsmachine.Machine, bool) {
	fits := func(f func(awsmachine.Machine) bool) int {
		return slices.IndexFunc(found, func(m awsmachine.Machine) bool { return m.State == instanceRuns && m.HostKey != "" && f(m) })
	}
	for _, f := range []func(awsmachine.Machine) bool{
		func(m awsmachine.Machine) bool { return m.PrivateIP == to },
		func(m awsmachine.Machine) bool { return m.Role == infraaws.RoleController },
	} {
		if i := fits(f); i >= 0 {
			return found[i], true
		}
	}
	return awsmachine.Machine{}, false
}
