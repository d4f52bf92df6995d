package session

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// Engine returns the rollout engine.
func (d *Session) Engine(ctx context.Context) *rollout.Engine {
	return &rollout.Engine{Fleet: d.Fleet(ctx)}
}

// Fleet returns the access to the machines. What is done on them is logged.
func (d *Session) Fleet(ctx context.Context) *fleet.Fleet {
	return &fleet.Fleet{
		Pool:    d.Pool,
		Store:   d.Store,
		Clock:   d.Now,
		Rand:    d.Rand,
		Dial:    d.dialAPI(ctx),
		Timing:  d.Timing,
		Silence: &d.Silence,
		Progress: func(machine, message string) {
			tflog.Info(ctx, message, map[string]any{"machine": machine})
		},
	}
}

// apiDialTimeout bounds the opening of one direct connection to an API server.
const apiDialTimeout = 15 * time.Second

// dialAPI returns how the endpoint of the API servers of a cluster is reached: a private address, or a name
// that does not lead to a public one from here, through the bastion, or through a machine behind a tunnel, if
// there is one, and anything else directly.
func (d *Session) dialAPI(ctx context.Context) func(cluster string) kube.DialFunc {
	direct := (&net.Dialer{Timeout: apiDialTimeout}).DialContext
	return func(cluster string) kube.DialFunc {
		var through func(context.Context, string) (remote.DialFunc, error)
		switch {
		case d.SSH.Tunnels:
			relay := &apiRelay{data: d, cluster: cluster}
			through = func(dialing context.Context, address string) (remote.DialFunc, error) {
				return relay.dialer(ctx, dialing, address)
			}
		case d.SSH.Bastion != nil:
			bastion := d.Pool.Machine(*d.SSH.Bastion).Dialer(ctx)
			through = func(context.Context, string) (remote.DialFunc, error) { return bastion, nil }
		default:
			return direct
		}
		return func(ctx context.Context, network, address string) (net.Conn, error) {
			if !leadsInside(ctx, address) {
				return direct(ctx, network, address)
			}
			dial, err := through(ctx, address)
			if err != nil {
				return nil, err
			}
			return dial(ctx, network, address)
		}
	}
}

// lookupTimeout bounds the question for the addresses of an endpoint's name.
const lookupTimeout = 5 * time.Second

// leadsInside reports whether an address with a port is private, or a name none of whose addresses is public.
func leadsInside(ctx context.Context, address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if at, err := netip.ParseAddr(host); err == nil {
		return inside(at)
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	return err != nil || !slices.ContainsFunc(found, func(a netip.Addr) bool { return !inside(a) })
}
