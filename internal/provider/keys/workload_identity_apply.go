package keys

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/oidc"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/issuer"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/owned"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Make implements owned.Kind.
func (r *workloadIdentityResource) Make(ctx context.Context, op *owned.Operation, m *workloadIdentityModel) error {
	return r.ensure(ctx, op, m, false)
}

// Change implements owned.Kind. Documents in a former place stay: whoever shows them at the issuer's URL may still read them there.
func (r *workloadIdentityResource) Change(ctx context.Context, op *owned.Operation, m, state *workloadIdentityModel) error {
	err := r.ensure(ctx, op, m, true)
	if was, is := state.place(), m.place(); err == nil && was.Bucket != "" && (was.Bucket != is.Bucket || was.Key != is.Key) {
		op.Diags.AddWarning("The former documents of the issuer stay", "They are below "+was.String()+", and have public keys only. Delete them once "+m.Issuer.ValueString()+" shows those of the new place.")
	}
	return err
}

func (r *workloadIdentityResource) ensure(ctx context.Context, op *owned.Operation, m *workloadIdentityModel, known bool) error {
	s, err := m.spec(ctx, r.Session, op)
	if err != nil {
		return err
	}
	found, err := oidc.Ensure(ctx, op.Client, known, s)
	m.ProviderARN, m.Drift = tf.OptionalString(found.ARN), tf.NoDrift()
	if found.ARN != "" {
		op.Exists(found.Claim, found.Unsettled)
	}
	if ids, wrong := issuer.KeyIDs(s.PublicKeysPEM); wrong == nil {
		m.KeyIDs = tf.StringsValue(ids)
	}
	m.reference(ctx, reference.ClusterOf(ctx, m.PKI, op.Diags))
	return hidden(err)
}

// hidden adds what to do about documents that not everybody can read.
func hidden(err error) error {
	var e *oidc.HiddenError
	switch {
	case !errors.As(err, &e):
		return err
	case e.Place.Bucket == "":
		return fmt.Errorf("%w. Publish what provider::k8s::issuer_documents returns at this URL, before this resource, then apply again", err)
	case !e.Own:
		return fmt.Errorf("%w. The server at this URL must show everybody what is below %s. Then apply again", err, e.Place)
	}
	return fmt.Errorf("%w. S3 blocks public access to new buckets: turn off block_public_policy and restrict_public_buckets of bucket %s, and let everybody have s3:GetObject on %s* in its policy, "+
		"as the guide Roles for pods shows. With a cache in front of the bucket, set issuer to its URL. Then apply again", err, e.Place.Bucket, e.Place.Key)
}

// Look implements owned.Kind.
func (r *workloadIdentityResource) Look(ctx context.Context, op *owned.Operation, m *workloadIdentityModel) error {
	s, err := m.spec(ctx, r.Session, op)
	if err != nil {
		return err
	}
	found, differs, unseen, err := oidc.Observe(ctx, op.Client, s)
	if err != nil {
		return err
	}
	if unseen != nil {
		op.Diags.AddWarning("An issuer could not be looked at", session.ErrorText(unseen)+"\n\nWhether it shows its keys is not known. This plan changes nothing because of that.")
	}
	op.Exists(found.Claim, found.Unsettled)
	op.Drift = finding.About("issuer "+s.Issuer, differs)
	return nil
}

// Remove implements owned.Kind.
func (r *workloadIdentityResource) Remove(ctx context.Context, op *owned.Operation, m *workloadIdentityModel) error {
	s, err := m.spec(ctx, r.Session, op)
	if err != nil {
		return err
	}
	left, err := oidc.Delete(ctx, op.Client, s)
	if left != nil {
		op.Diags.AddWarning("Documents of an issuer are left", session.ErrorText(left)+"\n\nThey are below "+m.place().String()+", and have public keys only: delete them by hand.")
	}
	return err
}

// Find implements owned.Kind. Keys and the place of the documents are left to the configuration.
func (r *workloadIdentityResource) Find(ctx context.Context, op *owned.Operation, id string, m *workloadIdentityModel) error {
	if err := issuer.Check(id); err != nil {
		return fmt.Errorf("the id is the issuer's URL, and this is none: %w", err)
	}
	m.Issuer, m.Audiences, m.KeyIDs = types.StringValue(id), types.SetNull(types.StringType), types.ListNull(types.StringType)
	s, err := m.spec(ctx, r.Session, op)
	if err != nil {
		return err
	}
	found, err := oidc.Find(ctx, op.Client, s)
	if err != nil {
		return err
	}
	op.Exists(found.Claim, found.Unsettled)
	m.Audiences, m.ProviderARN, m.Tags = tf.StringSet(found.Audiences...), types.StringValue(found.ARN), op.Tags(found.Tags)
	m.reference(ctx, tf.OptionalString(found.Cluster))
	return nil
}
