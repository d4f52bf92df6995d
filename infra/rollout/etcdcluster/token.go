package etcdcluster

import (
	"context"
	"fmt"
	"sync"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// etcd computes the ids of a cluster and of its first members from their peer URLs and a token. With the
// claim in the token, a cluster that is made again at the same addresses has other ids, so data of the
// earlier one are not taken for its own. Members that join later learn the ids from the cluster.

// begun is what an interrupted first start has left on a machine.
type begun struct {
	token string
	data  bool
}

// ownToken is the token of a cluster that is made with this record.
func (o *operation) ownToken() string {
	if claim := o.Record().Claim; claim != "" {
		return o.want.Spec.Cluster.Name + "-" + claim
	}
	return o.want.Spec.Cluster.Name
}

// clusterToken returns the token of a new cluster: that of an interrupted first start, since the members
// that have data keep its ids, or else own. Machines are in the order of the role. It is an error if two
// first starts have left data, each with a token of its own.
func clusterToken(own string, machines []string, found map[string]begun) (token string, stale []string, err error) {
	token = own
	first := "" // the machine that it comes from
	for _, name := range machines {
		b, ok := found[name]
		switch {
		case !ok || !b.data:
		case first == "":
			token, first = b.token, name
		case b.token != token:
			return "", nil, &fleet.GuardError{Refused: "start a new cluster of etcd",
				Reason: fmt.Sprintf("two first starts were interrupted, and each has left data: the first one on %s, the second one on %s", first, name),
				Advice: fmt.Sprintf("neither cluster has served a client: stop etcd on %s, delete %s and %s there, and apply again", name, memberDir, component.EtcdBootstrapEnv)}
		}
	}
	for _, name := range machines {
		if b, ok := found[name]; ok && !b.data && b.token != token {
			stale = append(stale, name)
		}
	}
	return token, stale, nil
}

// useToken puts the token into what is wanted on every machine.
func (o *operation) useToken(token string) error {
	o.want.Spec.Token = token
	for _, m := range o.Machines {
		var err error
		if m.Want, err = component.Etcd(o.want.spec(), m.Node); err != nil {
			return err
		}
	}
	return nil
}

// identify goes on with the token of an interrupted first start, and reports whether that has changed what
// is wanted or what is on a machine. The data of an existing cluster have its ids, so nothing is asked.
func (o *operation) identify(ctx context.Context) (changed bool, err error) {
	if o.Record().Formed {
		return false, nil
	}
	settings, err := o.bootstrapSettings(ctx)
	if err != nil {
		return false, err
	}
	found := map[string]begun{}
	for name, content := range settings {
		if token := component.BegunToken(content); token != "" {
			found[name] = begun{token: token, data: hasData(o.ByName(name))}
		}
	}
	token, stale, err := clusterToken(o.want.Spec.Token, namesOf(rollout.MachinesOf(o.Machines)), found)
	if err != nil {
		return false, err
	}
	for _, name := range stale {
		m := o.ByName(name)
		if err := deed.Wipe(ctx, m.Remote, component.EtcdUnit, component.EtcdBootstrapEnv); err != nil {
			return false, &fleet.StepError{Machine: name, Step: "clear the settings of an interrupted first start", Err: err}
		}
	}
	if token == o.want.Spec.Token {
		return len(stale) > 0, nil
	}
	return true, o.useToken(token)
}

// bootstrapSettings returns the content of EtcdBootstrapEnv by machine, of those that have it.
func (o *operation) bootstrapSettings(ctx context.Context) (map[string][]byte, error) {
	var mu sync.Mutex
	out := map[string][]byte{}
	err := fleet.Each(ctx, o.Reachable(), func(ctx context.Context, m *rollout.Machine) error {
		if _, ok := m.Seen.Files[component.EtcdBootstrapEnv]; !ok {
			return nil
		}
		found, err := host.Read(ctx, m.Remote, []string{component.EtcdBootstrapEnv}, nil)
		if err != nil {
			return fmt.Errorf("reading how etcd was started on %s: %w", m.Name(), err)
		}
		mu.Lock()
		defer mu.Unlock()
		out[m.Name()] = found[component.EtcdBootstrapEnv]
		return nil
	})
	return out, err
}
