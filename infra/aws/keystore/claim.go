package keystore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// storedOwner is the value of pki.NameOwner. The entry decides who owns all keys: it is written
// first, create-only, and deleted last.
type storedOwner struct {
	aws.Claim
	Settled time.Time `json:"settled,omitzero"`
}

func (s *Store) what() string { return "key store " + s.cfg.Prefix }

// owner returns the owner of the store. present is false if it has none.
func (s *Store) owner(ctx context.Context) (h aws.Owner, present bool, err error) {
	raw, err := s.Get(ctx, pki.NameOwner)
	if errors.Is(err, pki.ErrNotFound) {
		return aws.Owner{}, false, nil
	}
	if err != nil {
		return aws.Owner{}, false, err
	}
	var o storedOwner
	if err := json.Unmarshal(raw, &o); err != nil {
		return aws.Owner{}, false, fmt.Errorf("parameter %s%s does not say who owns the keys: %w", s.cfg.Prefix, pki.NameOwner, err)
	}
	return aws.Owner{Claim: o.Claim, Settled: !o.Settled.IsZero()}, true, nil
}

// Claim makes the store the claim's own before anything is written into it. A store without owner
// is free if it has no keys. The error is a ClaimedError if it belongs to another owner. It does
// nothing without a claim.
func (s *Store) Claim(ctx context.Context) error {
	if s.cfg.Claim.ID == "" {
		return nil
	}
	h, present, err := s.owner(ctx)
	if err != nil {
		return err
	}
	if !present {
		names, err := s.List(ctx)
		if err != nil {
			return err
		}
		if len(pki.Owned(names)) == 0 {
			return aws.Raced(s.begin(ctx))
		}
		if slices.Contains(names, pki.NameOwner) { // written meanwhile
			return aws.Raced(s.Check(ctx))
		}
	}
	take, err := s.cfg.Claim.Judge(s.what(), h, false)
	if err != nil || !take {
		return err
	}
	return aws.Raced(s.takeOver(ctx))
}

// ownOwner returns the owner entry for the store's own claim. An adopted store is settled at once.
func (s *Store) ownOwner() storedOwner {
	o := storedOwner{Claim: s.cfg.Claim}
	if s.cfg.Claim.Adopt {
		o.Settled = o.At
	}
	return o
}

// begin writes the owner into an empty store. If two creates do so at the same time, one fails.
func (s *Store) begin(ctx context.Context) error {
	err := s.Create(ctx, pki.NameOwner, s.ownOwner().encode())
	if errors.Is(err, pki.ErrExists) {
		return s.Check(ctx) // also our own, when the first answer was lost
	}
	return err
}

// takeOver makes the store the claim's own, and writes it on every entry.
func (s *Store) takeOver(ctx context.Context) error {
	if err := s.putOwner(ctx, s.ownOwner()); err != nil {
		return err
	}
	if err := s.Check(ctx); err != nil {
		return err
	}
	return s.Retag(ctx, nil)
}

// Check returns a ClaimedError if the store belongs to another owner, and an error if its owner
// cannot be read. A store that has lost its owner is no error.
func (s *Store) Check(ctx context.Context) error {
	h, _, err := s.owner(ctx)
	if err != nil {
		return err
	}
	claim := s.cfg.Claim
	claim.Adopt = false
	_, err = claim.Judge(s.what(), h, true)
	return err
}

// Restore is Check for a store that is about to be changed: it takes over what is to be adopted,
// and writes an owner that was lost.
func (s *Store) Restore(ctx context.Context) error {
	h, present, err := s.owner(ctx)
	if err != nil || s.cfg.Claim.ID == "" {
		return err
	}
	take, err := s.cfg.Claim.Judge(s.what(), h, true)
	switch {
	case err != nil:
		return err
	case take:
		return s.takeOver(ctx)
	case !present:
		return s.begin(ctx)
	}
	return nil
}

// Owner returns the claim to the store, for an import. It is the zero Claim if there is none.
func (s *Store) Owner(ctx context.Context) (aws.Claim, error) {
	h, _, err := s.owner(ctx)
	return h.Claim, err
}

// Settle records that a state holds the claim. A store of another owner, or a settled one, stays as
// it is.
func (s *Store) Settle(ctx context.Context, now time.Time) error {
	h, present, err := s.owner(ctx)
	if err != nil || !present || h.Settled || h.ID != s.cfg.Claim.ID {
		return err
	}
	return s.putOwner(ctx, storedOwner{Claim: h.Claim, Settled: now.UTC().Truncate(time.Second)})
}

func (s *Store) putOwner(ctx context.Context, o storedOwner) error {
	if _, err := s.put(ctx, &ssm.PutParameterInput{
		Name: sdk.String(s.cfg.Prefix + pki.NameOwner), Value: sdk.String(string(o.encode())),
		Type: types.ParameterTypeString, Overwrite: sdk.Bool(true),
	}); err != nil {
		return fmt.Errorf("write parameter %s%s: %w", s.cfg.Prefix, pki.NameOwner, err)
	}
	return nil
}

func (o storedOwner) encode() []byte {
	raw, err := json.Marshal(o)
	if err != nil {
		panic(err) // texts and times only
	}
	return raw
}
