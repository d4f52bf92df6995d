package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// etcdServes makes sure that etcd answers before API servers start or restart: without it they do
// not come up and say so only minutes later.
func (o *operation) etcdServes(ctx context.Context, plan rollout.Plan, endpoints []string) error {
	for _, batch := range plan {
		for _, s := range batch {
			if s.Action == rollout.ActionInstall || s.Action == rollout.ActionRoll {
				return o.askEtcd(ctx, o.ByName(s.Machine).Machine, endpoints)
			}
		}
	}
	return nil
}

// askEtcd asks all members on the machine's own connections until one is healthy and none has an
// alarm.
func (o *operation) askEtcd(ctx context.Context, m *fleet.Machine, endpoints []string) error {
	clients := make([]*etcd.Client, len(endpoints))
	for i, endpoint := range endpoints {
		var err error
		if clients[i], err = o.Access.MemberFrom(ctx, m, endpoint); err != nil {
			return err
		}
	}
	sick, err := fleet.UntilNone(ctx, fleet.EtcdAnswerBudget, "etcd", func(ctx context.Context) []string {
		answers := make(chan error, len(clients))
		for _, c := range clients {
			go func() { answers <- parallel.Safely(ctx, c.Endpoint(), func() error { return condition(ctx, c) }) }()
		}
		var sick []string
		for range clients {
			if err := <-answers; err != nil {
				sick = append(sick, err.Error())
			}
		}
		if len(sick) < len(clients) {
			return nil // one serves
		}
		slices.Sort(sick)
		return sick
	})
	if err == nil {
		return nil
	}
	return &fleet.StepError{Machine: m.Name(), Step: "ask etcd before the API server is started",
		Err:  fmt.Errorf("%w: no member serves, and nothing has been changed: %s", err, strings.Join(sick, "; ")),
		Next: "bring back the members that do not answer, and end alarms (terraform plan shows what differs on their machines), then apply again"}
}

// condition returns why an API server cannot use a member: no answer, no quorum, or an alarm of any
// member, with which all of them refuse to store anything.
func condition(ctx context.Context, c *etcd.Client) error {
	err := c.Health(ctx)
	s, statusErr := c.Status(ctx)
	if statusErr == nil && s.Leader != 0 && len(s.Alarms) > 0 {
		return fmt.Errorf("%s stores nothing: etcd has the alarm %s", c.Endpoint(), s.Alarms[0].Type)
	}
	if err == nil {
		return nil
	}
	if statusErr == nil && s.Leader == 0 {
		return fmt.Errorf("%s runs without a quorum", c.Endpoint())
	} else if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%s does not answer", c.Endpoint())
	}
	return err
}
