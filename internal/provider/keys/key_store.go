package keys

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/keystore"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// observe returns what differs in the key store. It reads no private key. An empty store is drift
// as well, and no reason to remove the resource from the state: with other keys it would be another
// cluster.
func (r *pkiResource) observe(ctx context.Context, store *keystore.Store, m pkiModel, h session.Ownership) ([]finding.Finding, error) {
	found, err := store.Look(ctx)
	if err != nil {
		return nil, err
	}
	var out []finding.Finding
	add := func(name string, problem finding.Problem) {
		out = append(out, finding.Finding{Subject: "key store", Kind: finding.Key, Target: name, Problem: problem})
	}
	ref := m.ref(ctx)
	public := ref.Public()
	for _, name := range pki.Names(ref.Generations) {
		value, present := found[name]
		switch {
		case !present:
			add(name, finding.Missing)
		case !pki.Secret(name) && strings.TrimSpace(value) != strings.TrimSpace(public[name]):
			add(name, finding.NotRecord)
		}
	}
	if _, present := found[pki.NameOwner]; !present && h.ID != "" {
		add(pki.NameOwner, finding.Missing)
	}
	for _, name := range pki.Strays(slices.Sorted(maps.Keys(found)), ref.Generations) {
		add(name, finding.Generation)
	}
	return out, nil
}

// ref returns the model's reference.
func (m pkiModel) ref(ctx context.Context) pki.Ref {
	ref, _ := reference.OfPKI.Read(ctx, m.Ref, &diag.Diagnostics{})
	return ref.Ref()
}

// rotate creates the generations that are new and deletes those that are no longer wanted.
func (r *pkiResource) rotate(ctx context.Context, m, state pkiModel, h session.Ownership) (pki.Ref, error) {
	before := state.ref(ctx)
	kept := m
	kept.Ref = state.Ref // the planned reference may be unknown
	store, opts, err := r.open(ctx, kept, h.Claim)
	if err != nil {
		return pki.Ref{}, err
	}
	if before.Generations.Equal(opts.Generations) {
		strays := []string{}
		if s, ok := store.(*keystore.Store); ok {
			present, err := s.List(ctx)
			if err != nil {
				return pki.Ref{}, err
			}
			strays = pki.Strays(present, before.Generations)
		}
		if len(strays) == 0 {
			before.KMSKeyID, before.KubernetesCAChain = m.KMSKeyID.ValueString(), m.given.Chain(before.Generations)
			return before, nil
		}
	}
	return pki.Rotate(ctx, store, m.Cluster.ValueString(), before.Generations, r.Session.Now(), r.Session.Rand, opts)
}

// repair restores public parts from the state, and changes tags and the KMS key. A lost private key
// cannot be restored from the state, unless it is given; one whose generation is dropped need not be.
func (r *pkiResource) repair(ctx context.Context, m, state pkiModel, h session.Ownership) error {
	store, err := r.keyStore(ctx, m, h.Claim)
	if err != nil {
		return err
	}
	if err := store.Restore(ctx); err != nil {
		return err
	}
	found, err := store.Look(ctx)
	if err != nil {
		return err
	}
	before := state.ref(ctx)
	public, wanted := before.Public(), pki.Names(reference.GenerationsFrom(m.Generations))
	for _, name := range pki.Names(before.Generations) {
		value, present := found[name]
		if !slices.Contains(wanted, name) || name == pki.NameGenerations {
			continue // rotate handles it
		}
		if pki.Secret(name) {
			key, given := m.given.Secret(name)
			switch {
			case present:
			case given:
				if err := store.Create(ctx, name, key); err != nil {
					return err
				}
			default:
				return fmt.Errorf("%s is gone and cannot be created again: restore it under %s from a copy (k8s_pki_copy, see the guide on backups; the controllers hold most keys under /etc/kubernetes), set private_key_wo if the authority was given, or destroy the cluster and make it again",
					name, m.Prefix.ValueString())
			}
			continue
		}
		if present && strings.TrimSpace(value) == strings.TrimSpace(public[name]) {
			continue
		}
		if err := store.Replace(ctx, name, []byte(public[name])); err != nil {
			return err
		}
	}
	if !m.KMSKeyID.Equal(state.KMSKeyID) {
		if err := store.Rewrap(ctx); err != nil {
			return err
		}
	}
	if !m.TagsAll.Equal(state.TagsAll) {
		return store.Retag(ctx, argument.RemovedKeys(state.TagsAll, m.TagsAll))
	}
	return nil
}

// openOwned opens the key store of an ownership, in the account and region that it is of.
func (r *pkiResource) openOwned(ctx context.Context, m pkiModel, h session.Ownership) (*keystore.Store, error) {
	client, err := r.Session.AWS(ctx)
	if err != nil {
		return nil, err
	}
	if err := r.Session.Checked(ctx, client, h); err != nil {
		return nil, err
	}
	return r.keyStore(ctx, m, h.Claim)
}

// recovered returns a lost ownership as the key store has it.
func (r *pkiResource) recovered(ctx context.Context, store *keystore.Store, h session.Ownership) (session.Ownership, error) {
	if !h.Lost() {
		return h, nil
	}
	found, err := r.importOwnership(ctx, store)
	found.Imported = false
	return found, err
}

// settle is Session.Settle for a key store.
func (r *pkiResource) settle(ctx context.Context, store *keystore.Store) {
	ctx, cancel := patience.Within(ctx, session.SettleTimeout)
	defer cancel()
	_ = store.Settle(ctx, r.Session.Now())
}

// importOwnership returns the ownership of a key store that exists.
func (r *pkiResource) importOwnership(ctx context.Context, store pki.Store) (session.Ownership, error) {
	ssm, ok := store.(*keystore.Store)
	if !ok {
		return session.Ownership{}, nil
	}
	client, err := r.Session.AWS(ctx)
	if err != nil {
		return session.Ownership{}, err
	}
	owner, err := ssm.Owner(ctx)
	if err != nil {
		return session.Ownership{}, err
	}
	return r.Session.Imported(ctx, client, owner)
}

// addKeysError adds the error of keys that were not made. It is on key_store if that is in AWS and there is nothing to
// ask AWS with.
func addKeysError(m pkiModel, diags *diag.Diagnostics, err error) {
	summary := "Cannot make the keys of cluster " + m.Cluster.ValueString()
	if m.KeyStore.ValueString() != pki.StoreSSM || !infraaws.Unconfigured(err) {
		session.AddError(diags, summary, err)
		return
	}
	diags.AddAttributeError(path.Root("key_store"), summary, session.ErrorText(err)+
		"\n\nThe key store \"ssm\", which is the default, is in AWS. key_store = \"state\" needs no AWS: then whoever reads the state is an administrator of the cluster.")
}
