package controlplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// The keys that encrypt secrets in etcd rotate without a restart. A roll-out is done when every API server has loaded
// them (loaded.go) and every
// value in etcd is sealed, that is, encrypted with the current key. The provider asks etcd which
// values are, so an interrupted rewrite continues where it stopped.

const (
	// parallelRewrites is how many objects are rewritten at the same time: enough to keep one API
	// server busy, few enough not to block other clients.
	parallelRewrites = 8
	// resealRounds is how often rewriting is tried until every value is encrypted with the new key.
	// One round is enough once every API server uses the key.
	resealRounds = 3
)

// sealing says with which keys the values in etcd are encrypted.
type sealing struct {
	total int
	// others are the etcd keys of values that are not encrypted with the writing generation. The
	// index is the generation they are encrypted with, or plain, or foreign.
	others map[int][]string
}

const (
	plain   = 0  // the value is not encrypted
	foreign = -1 // it is encrypted with a key that is not configured
)

// keys lists the values to encrypt again, by their etcd key.
func (s sealing) keys() []string {
	var out []string
	for _, g := range slices.Sorted(maps.Keys(s.others)) {
		out = append(out, s.others[g]...)
	}
	return out
}

// findings returns the values that are not encrypted with the writing generation, none if all are.
func (s sealing) findings(writing int) []finding.Finding {
	var out []finding.Finding
	for _, g := range slices.Sorted(maps.Keys(s.others)) {
		f := finding.Finding{Subject: "encryption", Kind: finding.Secrets, Target: strconv.Itoa(len(s.others[g])), Wanted: pki.EncryptionKeyName(writing)}
		switch {
		case g == plain:
			f.Problem = finding.Plain
		case g == foreign:
			f.Problem = finding.UnknownKey
		case g < writing:
			f.Problem, f.Found = finding.OldKey, pki.EncryptionKeyName(g)
		default: // an apply was interrupted
			f.Problem, f.Found = finding.NewKey, pki.EncryptionKeyName(g)
		}
		out = append(out, f)
	}
	return out
}

// sealed finds out with which keys the values in etcd are encrypted. No value is transferred. If
// all are as wanted, it takes one comparison per few hundred values.
func sealed(ctx context.Context, c *etcd.Client, under string, generations []int) (sealing, error) {
	s := sealing{others: map[int][]string{}}
	rest, total, err := c.Unlike(ctx, under, component.EncryptedBy(generations[0]))
	s.total = total
	for _, g := range append(slices.Clone(generations[1:]), plain) {
		if err != nil || len(rest) == 0 {
			return s, err
		}
		prefix := component.EncryptedBy(g)
		if g == plain {
			prefix = component.PlainPrefix
		}
		var not []string
		not, err = c.NotBeginning(ctx, rest, prefix)
		if like := difference(rest, not); len(like) > 0 && err == nil {
			s.others[g] = like
		}
		rest = not
	}
	if len(rest) > 0 {
		s.others[foreign] = rest
	}
	return s, err
}

// difference returns the words of list that are not in others. Both are in the same order.
func difference(list, others []string) []string {
	var out []string
	for _, w := range list {
		if len(others) > 0 && others[0] == w {
			others = others[1:]
			continue
		}
		out = append(out, w)
	}
	return out
}

// storage returns a client of etcd, through the first controller and member that answer.
func (o *operation) storage(ctx context.Context) (*etcd.Client, error) {
	c, err := fleet.FirstAnswer(ctx, o.Reached(), o.storageFrom)
	if err != nil {
		return nil, fmt.Errorf("no etcd member answers: %w", err)
	}
	return c, nil
}

// storageFrom returns a client of the first healthy member, connected from a machine.
func (o *operation) storageFrom(ctx context.Context, m *fleet.Machine) (*etcd.Client, error) {
	var errs []error
	for _, endpoint := range o.want.Spec.EtcdEndpoints {
		c, err := o.Access.MemberFrom(ctx, m, endpoint)
		if err != nil {
			return nil, err
		}
		if err = c.Health(ctx); err == nil {
			return c, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

func (o *operation) generations() []int {
	return o.want.Spec.Cluster.PKI.Generations.Of(pki.KindEncryption)
}

// sealingDrift reports secrets that are not encrypted with the writing key. With only one key it
// asks nothing.
func (o *operation) sealingDrift(ctx context.Context, r *rollout.Report) {
	under, generations := o.want.Spec.EncryptedUnder(), o.generations()
	if under == "" || len(generations) < 2 {
		return
	}
	ctx, cancel := fleet.Probing(ctx)
	defer cancel()
	s, err := fleet.AskInTurn(ctx, fleet.AnswerShare, etcd.Busy, fleet.QuestionsFor(rollout.MachinesOf(o.Machines), func(ctx context.Context, m *fleet.Machine) (sealing, error) {
		c, err := o.storageFrom(ctx, m)
		if err != nil {
			return sealing{}, err
		}
		return sealed(ctx, c, under, generations)
	}))
	if err != nil {
		r.CannotJudge(finding.Secrets, "", err)
		return
	}
	r.Find(s.findings(generations[0])...)
}

// mayDropKeys refuses an encryption configuration without a key that a value in etcd still needs:
// nobody could read that value any more. It first rewrites the values that the API servers can read
// with their present keys.
func (o *operation) mayDropKeys(ctx context.Context) error {
	under := o.want.Spec.EncryptedUnder()
	replaced := slices.ContainsFunc(o.Reachable(), func(m *rollout.Machine) bool {
		return m.Record.Secrets[component.EncryptionConfigPath].SHA256 != "" && rollout.Touches(m.Changes, component.EncryptionConfigPath)
	})
	if under == "" || !replaced {
		return nil
	}
	c, err := o.storage(ctx)
	if err != nil {
		return fmt.Errorf("finding out which keys secrets are encrypted with, before the keys change: %w", err)
	}
	lost, err := o.lostWithout(ctx, c, under)
	if err == nil && len(lost) > 0 {
		if err = o.rewrite(ctx, under, lost); err == nil {
			lost, err = o.lostWithout(ctx, c, under)
		}
	}
	if err != nil {
		return fmt.Errorf("finding out which keys secrets are encrypted with, before the keys change: %w", err)
	}
	if len(lost) == 0 {
		return nil
	}
	return &fleet.GuardError{Refused: "drop an encryption key",
		Reason: fmt.Sprintf("%d secrets are encrypted with it and could not be read any more, %s first", len(lost), strings.TrimPrefix(lost[0], under)),
		Advice: "the API servers still have it: have the generation that is to stay write first (put it first in the list and apply)"}
}

// lostWithout returns the etcd keys of values that none of the wanted generations can decrypt.
func (o *operation) lostWithout(ctx context.Context, c *etcd.Client, under string) ([]string, error) {
	s, err := sealed(ctx, c, under, o.generations())
	if err != nil {
		return nil, err
	}
	not, err := c.NotBeginning(ctx, s.others[foreign], component.EncryptedPrefix)
	return difference(s.others[foreign], not), err
}

// seal has every value in etcd encrypted with the first of the wanted keys, once every API server has loaded these.
func (o *operation) seal(ctx context.Context) error {
	under := o.want.Spec.EncryptedUnder()
	digest := o.toLoad()[component.EncryptionConfigPath]
	if under == "" || digest == "" || o.Record().Sealed == digest && len(o.generations()) < 2 {
		return nil
	}
	if err := o.reseal(ctx, under); err != nil {
		return err
	}
	o.Note(func(r *rollout.Record) { r.Sealed = digest })
	return nil
}

// reseal rewrites every value that is not encrypted with the writing generation, and checks again,
// because others may have written in the meantime.
func (o *operation) reseal(ctx context.Context, under string) error {
	c, err := o.storage(ctx)
	if err != nil {
		return err
	}
	writing := o.generations()[0]
	rewritten := 0
	for round := 0; ; round++ {
		s, err := sealed(ctx, c, under, o.generations())
		if err != nil {
			return err
		}
		stale := s.keys()
		if len(stale) == 0 {
			if rewritten > 0 {
				o.Fleet.Say(o.want.Spec.Cluster.PKI.Cluster, "encryption: %d secrets rewritten with %s; all %d are encrypted with it",
					rewritten, pki.EncryptionKeyName(writing), s.total)
			}
			return nil
		}
		if round == resealRounds {
			return fmt.Errorf("%s, although all were rewritten; the first is %s",
				finding.Words(s.findings(writing)), strings.TrimPrefix(stale[0], under))
		}
		if err := o.rewrite(ctx, under, stale); err != nil {
			return fmt.Errorf("%w\n%s; apply again: it continues from there", err, finding.Words(s.findings(writing)))
		}
		rewritten += len(stale)
	}
}

func (o *operation) rewrite(ctx context.Context, under string, keys []string) error {
	c, err := o.anyReady(ctx, o.Reached())
	if err != nil {
		return err
	}
	o.Fleet.Say(o.want.Spec.Cluster.PKI.Cluster, "encryption: rewriting %d secrets with %s", len(keys), pki.EncryptionKeyName(o.generations()[0]))
	group, ctx := parallel.WithContext(ctx)
	group.SetLimit(parallelRewrites)
	for _, key := range keys {
		namespace, name, ok := strings.Cut(strings.TrimPrefix(key, under), "/")
		if !ok {
			return fmt.Errorf("%s in etcd is not the key of an object in a namespace", key)
		}
		group.Go(func() error { return c.RewriteSecret(ctx, namespace, name) })
	}
	return group.Wait()
}
