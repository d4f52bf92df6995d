package keys

import (
	"context"
	"errors"
	"fmt"
	stdpath "path"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	awsobject "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/object"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/keycopy"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// The creation of k8s_pki from an encrypted copy.

const (
	restoreFrom     = "restore_from"
	restoreIdentity = "restore_identity_wo"
)

// restoreModel is `restore_from`.
type restoreModel struct {
	Bucket types.String `tfsdk:"bucket"`
	Key    types.String `tfsdk:"key"`
	Region types.String `tfsdk:"region"`
}

func (m restoreModel) ref() awsobject.Ref {
	return awsobject.Ref{Bucket: m.Bucket.ValueString(), Key: m.Key.ValueString(), Region: m.Region.ValueString()}
}

func restoreFromAttribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Optional: true, Computed: true,
		MarkdownDescription: "Encrypted copy of keys in S3, written by `k8s_pki_copy`, that is restored instead of making new keys. `generations` must be the same as in the copy. It is used only at " +
			"creation and replacement. The guide [Backups](../guides/backups.md) describes the steps. Default: none; new keys are made.",
		Attributes: map[string]schema.Attribute{
			"bucket": schema.StringAttribute{Required: true, MarkdownDescription: "Bucket of the copy.", Validators: []validator.String{argument.BucketName()}},
			"key":    schema.StringAttribute{Required: true, MarkdownDescription: "Key of the object: `key` of `k8s_pki_copy`. Its last part is compared with the keys in the copy, so the object cannot be renamed, and nobody can put other keys under a name that you have noted.", Validators: []validator.String{stringvalidator.LengthBetween(1, 1024)}},
			"region": schema.StringAttribute{Optional: true, MarkdownDescription: "AWS region of the bucket. Default: the provider's region."},
		},
		PlanModifiers: []planmodifier.Object{onlyAtCreation{}},
	}
}

func restoreIdentityAttribute() schema.StringAttribute {
	return schema.StringAttribute{
		Optional: true, WriteOnly: true, Sensitive: true,
		MarkdownDescription: "The age identity that decrypts `restore_from`: the secret half of one of its recipients, as `age-keygen` writes it into a file. Required to create this with `restore_from`, and " +
			"not used afterwards. May be ephemeral. It is never in the state, in plans or in logs. Needs Terraform 1.11.",
		Validators: []validator.String{
			tf.Check("an age identity, as age-keygen writes it", keycopy.CheckIdentity),
			stringvalidator.AlsoRequires(path.MatchRoot(restoreFrom)),
		},
	}
}

// onlyAtCreation keeps the value with which an object was created.
type onlyAtCreation struct{}

func (onlyAtCreation) Description(context.Context) string {
	return "Matters only at the creation; the state keeps it."
}
func (o onlyAtCreation) MarkdownDescription(ctx context.Context) string { return o.Description(ctx) }

func (onlyAtCreation) PlanModifyObject(_ context.Context, req planmodifier.ObjectRequest, resp *planmodifier.ObjectResponse) {
	switch {
	case req.State.Raw.IsNull():
		if req.ConfigValue.IsNull() {
			resp.PlanValue = req.ConfigValue
		}
	case !req.StateValue.IsNull() || req.ConfigValue.IsNull():
		resp.PlanValue = req.StateValue
	default: // Terraform does not let a plan leave out what is configured
		resp.Diagnostics.AddAttributeWarning(req.Path, "restore_from has no effect",
			"restore_from matters only when the resource is created, and the resource exists already: the key store stays as it is. The apply only notes the value in the state. "+
				"Remove it from the configuration. If a key is lost, or if everything is gone but a copy of the keys, the guides on backups and restoring say what to do.")
	}
}

// checkRestore refuses the plan of a creation that could not use restore_from.
func checkRestore(ctx context.Context, req resource.ModifyPlanRequest, plan pkiModel, diags *diag.Diagnostics) {
	if !req.State.Raw.IsNull() || plan.RestoreFrom.IsNull() {
		return
	}
	var identity types.String
	diags.Append(req.Config.GetAttribute(ctx, path.Root(restoreIdentity), &identity)...)
	if identity.IsNull() {
		diags.AddAttributeError(path.Root(restoreIdentity), "Missing identity",
			"restore_from is set, and the copy can be read only with the age identity of one of its recipients: set restore_identity_wo.")
	}
	if plan.Adopt.ValueBool() {
		diags.AddAttributeError(path.Root("adopt"), "adopt and restore_from exclude each other",
			"adopt takes over the keys that exist, and restore_from writes the keys of a copy into an empty key store. Remove one of the two.")
	}
}

// readCopy reads, decrypts and checks the copy that restore_from names. It returns nil without one.
// The errors name the argument that is at fault.
func (r *pkiResource) readCopy(ctx context.Context, m pkiModel, identity types.String) (*keycopy.Copy, error) {
	var diags diag.Diagnostics
	from, ok := tf.Object[restoreModel](ctx, m.RestoreFrom, &diags)
	if !ok {
		return nil, nil
	}
	fail := func(field string, err error) (*keycopy.Copy, error) {
		return nil, &invalid.Field{Field: field, Problem: "Unusable copy", Err: fmt.Errorf("%w. Nothing was changed", err)}
	}
	if err := keycopy.CheckIdentity(identity.ValueString()); err != nil {
		return fail(restoreIdentity, err)
	}
	client, err := r.Session.AWS(ctx)
	if err != nil {
		return nil, err
	}
	data, err := awsobject.Get(ctx, client, from.ref(), keycopy.MaxSize)
	if err != nil {
		return fail(restoreFrom, err)
	}
	c, err := keycopy.Decrypt(data, identity.ValueString())
	switch {
	case errors.Is(err, keycopy.ErrIdentity):
		return fail(restoreIdentity, fmt.Errorf("%s: %w", from.ref(), err))
	case err != nil:
		return fail(restoreFrom, fmt.Errorf("%s: %w", from.ref(), err))
	}
	// Anybody who may write to the bucket can encrypt keys of their own for the recipients. The name
	// follows from the keys.
	if stdpath.Base(from.Key.ValueString()) != c.Name() {
		return fail(restoreFrom, fmt.Errorf("%s: the name of these keys is %s, so this is not the copy that was written under this name", from.ref(), c.Name()))
	}
	configured := reference.GenerationsFrom(m.Generations)
	for _, k := range pki.Kinds() {
		if had := pki.FormatGenerations(c.Generations.Of(k)); had != pki.FormatGenerations(configured.Of(k)) {
			return fail("generations", fmt.Errorf("%s has generations %s of %s: write generations.%s = %s", from.ref(), had, k, k, had))
		}
	}
	return c, nil
}

// warnOfOtherName warns of keys that were those of a cluster with another name.
func warnOfOtherName(c *keycopy.Copy, cluster string, diags *diag.Diagnostics) {
	if c == nil || c.Cluster == cluster {
		return
	}
	diags.AddAttributeWarning(path.Root(restoreFrom), fmt.Sprintf("Cluster %s has the keys of cluster %s", cluster, c.Cluster),
		fmt.Sprintf("The copy was made of cluster %[2]s. Whoever has a kubeconfig, a certificate or a token of one of the two can use it at the other one. If cluster %[2]s still runs, rotate the keys of %[1]s.", cluster, c.Cluster))
}

// otherKeys says what to do about keys that prevent the restore of a copy.
func otherKeys(err error, m pkiModel) error {
	if !errors.Is(err, keycopy.ErrOther) {
		return err
	}
	return &invalid.Field{Field: restoreFrom, Problem: "Other keys", Err: fmt.Errorf("%w. Nothing was overwritten. If they are left from an apply without restore_from that has not ended, delete the parameters below %s; "+
		"if a cluster uses them, remove restore_from", err, m.Prefix.ValueString())}
}
