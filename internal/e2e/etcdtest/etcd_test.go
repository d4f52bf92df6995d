// Package etcdtest tests package etcd against real etcd members on loopback.
package etcdtest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/local"
)

func memberNames(t *testing.T, c *etcd.Client) []string {
	t.Helper()
	members, err := c.Members(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, m := range members {
		name := m.Name
		if m.Learner {
			name += " (learner)"
		}
		out = append(out, name)
	}
	return out
}

func TestMembership(t *testing.T) {
	p, program := local.NewPKI(t), local.EtcdProgram(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, b := local.NewMember(t, p, program, "a"), local.NewMember(t, p, program, "b")
	a.Start(t, false, a)
	ca := a.Client(t, p)
	if err := ca.WaitHealthy(ctx, nil); err != nil {
		t.Fatal(err)
	}
	status, err := ca.Status(ctx)
	if err != nil || status.Leader != status.ID || status.Version == "" || status.DBSize == 0 {
		t.Errorf("status = %+v, %v; wanted a leader with a version and a size", status, err)
	}

	learner, err := ca.AddLearner(ctx, b.PeerURL)
	if err != nil {
		t.Fatal(err)
	}
	members, err := ca.Members(ctx)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(members, func(m etcd.Member) bool { return m.ID == learner.ID })
	if i < 0 || members[i].Started() || members[i].Name != "" || !members[i].Learner {
		t.Errorf("before its start the new member is %+v, wanted a nameless learner", members)
	}
	if _, err := ca.AddLearner(ctx, b.PeerURL); err == nil || strings.Contains(err.Error(), "not within") {
		t.Errorf("adding the same address again: %v, wanted a prompt refusal", err)
	}

	// A learner that has not started cannot be promoted, and the wait ends when the caller reports
	// that the member has died.
	died := errors.New("died")
	polls := 0
	err = ca.Promote(ctx, learner.ID, func(context.Context) error {
		if polls++; polls == 3 {
			return died
		}
		return nil
	})
	if !errors.Is(err, died) {
		t.Errorf("promoting a learner that never starts: %v, wanted %v", err, died)
	}

	b.Start(t, true, a, b)
	cb := b.Client(t, p)
	if err := cb.WaitHealthy(ctx, nil); err != nil {
		t.Errorf("a learner that follows its leader counts as healthy: %v", err)
	}
	if got, want := memberNames(t, ca), []string{"a", "b (learner)"}; !slices.Equal(got, want) {
		t.Errorf("members = %q, wanted %q", got, want)
	}
	for range 2 { // the second time it is a voter already
		if err := ca.Promote(ctx, learner.ID, nil); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := memberNames(t, cb), []string{"a", "b"}; !slices.Equal(got, want) {
		t.Errorf("members = %q, wanted %q", got, want)
	}

	for range 2 { // the second time it has left already
		if err := ca.Remove(ctx, learner.ID); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := memberNames(t, ca), []string{"a"}; !slices.Equal(got, want) {
		t.Errorf("members = %q, wanted %q", got, want)
	}
}

func TestLostQuorum(t *testing.T) {
	p, program := local.NewPKI(t), local.EtcdProgram(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, b := local.NewMember(t, p, program, "a"), local.NewMember(t, p, program, "b")
	a.Start(t, false, a, b)
	other := b.Start(t, false, a, b)
	c := a.Client(t, p)
	if err := c.WaitHealthy(ctx, nil); err != nil {
		t.Fatal(err)
	}
	other.Stop()
	if err := c.Health(ctx); err == nil {
		t.Error("a member without quorum counts as healthy")
	}
	if _, err := c.Members(ctx); err == nil {
		t.Error("a member without quorum told the members as agreed on")
	}
	if _, err := c.Status(ctx); err != nil {
		t.Errorf("status needs no quorum: %v", err)
	}
	short, cancel := context.WithTimeoutCause(ctx, time.Second, errors.New("patience ended"))
	defer cancel()
	if err := c.WaitHealthy(short, nil); err == nil || !strings.Contains(err.Error(), "patience ended") || !strings.Contains(err.Error(), "last:") {
		t.Errorf("WaitHealthy = %v, wanted the cause and the last condition", err)
	}
	b.Start(t, false, a, b)
	if err := c.WaitHealthy(ctx, nil); err != nil {
		t.Errorf("after the other member came back: %v", err)
	}
}

func TestMoveLeader(t *testing.T) {
	p, program := local.NewPKI(t), local.EtcdProgram(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a, b := local.NewMember(t, p, program, "a"), local.NewMember(t, p, program, "b")
	a.Start(t, false, a, b)
	b.Start(t, false, a, b)
	clients := []*etcd.Client{a.Client(t, p), b.Client(t, p)}
	var ids []etcd.ID
	leader := -1
	for i, c := range clients {
		if err := c.WaitHealthy(ctx, nil); err != nil {
			t.Fatal(err)
		}
		s, err := c.Status(ctx)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, s.ID)
		if s.Leader == s.ID {
			leader = i
		}
	}
	if leader < 0 {
		t.Fatal("nobody leads")
	}
	if err := clients[leader].MoveLeader(ctx, ids[1-leader]); err != nil {
		t.Fatal(err)
	}
	if s, err := clients[1-leader].Status(ctx); err != nil || s.Leader != ids[1-leader] {
		t.Errorf("leader is %v (%v), wanted %v", s.Leader, err, ids[1-leader])
	}
}

func TestForeignClient(t *testing.T) {
	p, program := local.NewPKI(t), local.EtcdProgram(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	a := local.NewMember(t, p, program, "a")
	a.Start(t, false, a)
	if err := a.Client(t, p).WaitHealthy(ctx, nil); err != nil {
		t.Fatal(err)
	}
	foreign := local.NewPKI(t).Issue(t, pki.EtcdCA, pki.Request{CommonName: "stranger", Client: true})
	stranger, err := etcd.New(etcd.Access{Endpoint: a.ClientURL, CA: []byte(p.Ref.EtcdCA), Cert: foreign.CertPEM, Key: foreign.KeyPEM})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	if err := stranger.Health(ctx); err == nil {
		t.Error("a client of a foreign authority was served")
	}
}
