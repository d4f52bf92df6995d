// Package keys has the resources of what proves who somebody is: k8s_pki, its copies, and kubeconfigs. How keys
// are made and kept is in infra/pki, infra/aws/keystore and infra/keycopy.
package keys

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringdefault"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/keystore"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/keycopy"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/owned"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

var (
	_ resource.ResourceWithConfigure   = (*pkiResource)(nil)
	_ resource.ResourceWithModifyPlan  = (*pkiResource)(nil)
	_ resource.ResourceWithImportState = (*pkiResource)(nil)
)

var pkiDeadlines = tf.Deadlines{Create: argument.PKITimeout, Read: argument.ReadTimeout, Update: argument.PKITimeout, Delete: argument.PKITimeout}

type pkiResource struct{ session.Base }

func NewPKI() resource.Resource { return &pkiResource{} }

type pkiModel struct {
	ID          types.String   `tfsdk:"id"`
	Cluster     types.String   `tfsdk:"cluster"`
	KeyStore    types.String   `tfsdk:"key_store"`
	Prefix      types.String   `tfsdk:"prefix"`
	KMSKeyID    types.String   `tfsdk:"kms_key_id"`
	CAValidity  types.String   `tfsdk:"ca_validity"`
	Generations types.Object   `tfsdk:"generations"`
	Authorities types.Object   `tfsdk:"authorities"`
	Adopt       types.Bool     `tfsdk:"adopt"`
	RestoreFrom types.Object   `tfsdk:"restore_from"`
	Identity    types.String   `tfsdk:"restore_identity_wo"` // write-only: null except in the configuration
	Tags        types.Map      `tfsdk:"tags"`
	TagsAll     types.Map      `tfsdk:"tags_all"`
	Ref         types.Object   `tfsdk:"ref"`
	Protection  types.Bool     `tfsdk:"deletion_protection"`
	Claim       types.String   `tfsdk:"claim"`
	Drift       types.Map      `tfsdk:"drift"`
	Timeouts    timeouts.Value `tfsdk:"timeouts"`

	given pki.Authorities // with keys: from the configuration
}

func (r *pkiResource) Metadata(_ context.Context, _ resource.MetadataRequest, resp *resource.MetadataResponse) {
	resp.TypeName = "k8s_pki"
}

func (r *pkiResource) Schema(ctx context.Context, _ resource.SchemaRequest, resp *resource.SchemaResponse) {
	replace := []planmodifier.String{stringplanmodifier.RequiresReplace()}
	resp.Schema = schema.Schema{
		MarkdownDescription: "The keys of one cluster: certificate authorities for Kubernetes, etcd and the front proxy, the service-account key pair, and the key that encrypts secrets in etcd. " +
			"Private keys are only in the key store. **Destroying this resource destroys the keys.**",
		Attributes: map[string]schema.Attribute{
			"id": schema.StringAttribute{
				Computed: true, MarkdownDescription: "Identifier: the cluster's name. Import takes it, for the key store `ssm`. Another prefix than the default one follows it: `demo/my/prefix/`.",
				PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()},
			},
			"cluster": schema.StringAttribute{
				Required: true, MarkdownDescription: "Name of the cluster. A change replaces all keys and certificates.",
				Validators: []validator.String{argument.ClusterName()}, PlanModifiers: replace,
			},
			"key_store": schema.StringAttribute{
				Optional: true, Computed: true, Default: stringdefault.StaticString(pki.StoreSSM),
				MarkdownDescription: "Where private keys are stored: `ssm` (AWS SSM Parameter Store, SecureString) or `state` (the Terraform state, as sensitive values, for clusters " +
					"without AWS). With `state`, whoever can read the state controls the cluster. A change replaces all keys. Default: `ssm`.",
				Validators: []validator.String{argument.KeyStore()}, PlanModifiers: replace,
			},
			"prefix": schema.StringAttribute{
				Optional: true, Computed: true,
				MarkdownDescription: "Prefix of the parameters' names, for the key store `ssm`. A change replaces all keys. Default: `/k8s/<cluster>/pki/`.",
				Validators:          []validator.String{parameterPrefix()},
				PlanModifiers:       []planmodifier.String{stringplanmodifier.UseStateForUnknown(), stringplanmodifier.RequiresReplaceIfConfigured()},
			},
			"kms_key_id": schema.StringAttribute{
				Optional: true,
				MarkdownDescription: "KMS key (id, ARN or alias) that encrypts the parameters, for the key store `ssm`. A change encrypts the same keys again, in place. Default: the " +
					"account's `alias/aws/ssm`.",
			},
			"ca_validity":   caValidityAttribute(),
			"generations":   generationsAttribute(),
			authoritiesName: authoritiesAttribute(),
			"adopt":         argument.AdoptAttribute(),
			restoreFrom:     restoreFromAttribute(), restoreIdentity: restoreIdentityAttribute(),
			argument.Protection: argument.ProtectionAttribute(),
			"tags":              argument.TagsAttribute(),
			"tags_all":          argument.TagsAllAttribute(),
			"timeouts":          pkiDeadlines.Attribute(ctx),
			"ref":               reference.OfPKI.Output("Reference: the value for `pki` of other resources."),
			"claim":             argument.ClaimAttribute("in the parameter `owner` of the key store `ssm`; null for the key store `state`", argument.GuardsAll),
			"drift":             tf.DriftAttribute(),
		},
	}
}

func caValidityAttribute() schema.StringAttribute {
	fallback := tf.ShortDuration(pki.DefaultCAValidity)
	return schema.StringAttribute{
		Optional: true, Computed: true, Default: stringdefault.StaticString(fallback),
		MarkdownDescription: fmt.Sprintf("How long the certificates of the authorities are valid, as a duration such as `87600h`: at least `%s`, at most `%s`. A change applies to "+
			"certificates that are created later; existing ones stay. Default: `%s` (10 years).", tf.ShortDuration(pki.MinCAValidity), tf.ShortDuration(pki.MaxCAValidity), fallback),
		// The type timetypes.GoDuration would report a long duration as no duration at all.
		Validators: []validator.String{tf.Check("a duration", func(s string) error {
			_, err := pki.ParseCAValidity(s)
			return err
		})},
		PlanModifiers: []planmodifier.String{tf.KeepEquivalent(timetypes.GoDurationType{})},
	}
}

func (r *pkiResource) ModifyPlan(ctx context.Context, req resource.ModifyPlanRequest, resp *resource.ModifyPlanResponse) {
	defer r.warnOfLostKeys(ctx, req, resp)
	if req.Plan.Raw.IsNull() || r.Session == nil {
		return
	}
	var plan pkiModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &plan)...)
	if resp.Diagnostics.HasError() {
		return
	}
	checkRestore(ctx, req, plan, &resp.Diagnostics)
	inState := plan.KeyStore.ValueString() == pki.StoreState
	for name, v := range map[string]types.String{"prefix": plan.Prefix, "kms_key_id": plan.KMSKeyID} {
		if inState && v.ValueString() != "" {
			resp.Diagnostics.AddAttributeError(path.Root(name), "Argument of another key store", name+` applies only to key_store = "ssm": remove it.`)
		}
	}
	plan.ID, plan.TagsAll = plan.Cluster, r.Session.PlanTags(plan.Tags, &resp.Diagnostics)
	if plan.Prefix.IsUnknown() || plan.Prefix.IsNull() {
		plan.Prefix = plan.defaultPrefix()
	}
	var ref reference.PKI
	var public map[string]string
	if req.State.Raw.IsNull() {
		ref = plan.newRef(ctx, inState)
	} else {
		var state pkiModel
		resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
		if req.Private != nil {
			session.ReadOwnership(ctx, req.Private, state.Claim, &resp.Diagnostics).CheckImported("keys", state.Cluster, plan.Cluster, "delete the keys of that cluster", &resp.Diagnostics)
		}
		ref, _ = reference.OfPKI.Read(ctx, state.Ref, &resp.Diagnostics)
		public = ref.Ref().Public()
		ref.KMSKeyID = plan.KMSKeyID
		ref = plannedRotation(ctx, ref, plan.Generations, &resp.Diagnostics)
	}
	ref.KubernetesCAChain = r.planAuthorities(ctx, req, plan, public, &resp.Diagnostics)
	plan.Ref = reference.OfPKI.Value(ctx, ref)
	resp.Diagnostics.Append(resp.Plan.Set(ctx, &plan)...)
}

func (m pkiModel) defaultPrefix() types.String {
	switch {
	case m.KeyStore.IsUnknown() || m.Cluster.IsUnknown():
		return types.StringUnknown()
	case m.KeyStore.ValueString() != pki.StoreSSM:
		return types.StringNull()
	}
	return types.StringValue(keystore.DefaultPrefix(m.Cluster.ValueString()))
}

// newRef plans the reference before the keys exist.
func (m pkiModel) newRef(ctx context.Context, inState bool) reference.PKI {
	unknown := types.StringUnknown()
	ref := reference.PKI{
		Cluster: m.Cluster, Store: m.KeyStore, Prefix: m.Prefix, KMSKeyID: m.KMSKeyID, Region: unknown,
		KubernetesCA: unknown, EtcdCA: unknown, FrontProxyCA: unknown, ServiceAccountPublicKey: unknown,
		Generations: plannedGenerations(ctx, m.Generations), Keys: types.MapUnknown(types.StringType),
	}
	switch {
	case m.KeyStore.IsUnknown():
	case inState:
		ref.Region = types.StringNull()
	default:
		ref.Keys = types.MapNull(types.StringType)
	}
	return ref
}

func (r *pkiResource) Create(ctx context.Context, req resource.CreateRequest, resp *resource.CreateResponse) {
	var m pkiModel
	var identity types.String
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(req.Config.GetAttribute(ctx, path.Root(restoreIdentity), &identity)...)
	m.given, _ = readAuthorities(ctx, req.Config, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	ctx, cancel := argument.WithTimeout(ctx, m.Timeouts.Create, argument.PKITimeout, &resp.Diagnostics)
	defer cancel()
	var ref pki.Ref
	var h session.Ownership
	from, err := r.readCopy(ctx, m, identity)
	if err == nil {
		ref, h, err = r.bootstrap(ctx, m, from)
	}
	if err != nil {
		// Nothing goes into the state. The next apply continues with what is in the key store,
		// whereas Terraform would delete the keys of a tainted resource.
		addKeysError(m, &resp.Diagnostics, err)
		return
	}
	warnOfOtherName(from, m.Cluster.ValueString(), &resp.Diagnostics)
	m.Ref, m.Drift, m.Claim = reference.PKIValue(ctx, ref), tf.NoDrift(), tf.OptionalString(h.ID)
	tf.WritePrivate(ctx, resp.Private, session.OwnershipKey, h, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// bootstrap makes the keys, or takes them from a copy if there is one. In SSM it claims the key
// store first, and looks last whether the store is still its own.
func (r *pkiResource) bootstrap(ctx context.Context, m pkiModel, from *keycopy.Copy) (ref pki.Ref, h session.Ownership, err error) {
	if m.KeyStore.ValueString() == pki.StoreSSM {
		client, err := r.Session.AWS(ctx)
		if err == nil {
			h, err = r.Session.NewOwnership(ctx, client)
		}
		if err != nil {
			return ref, h, err
		}
		h.Adopt = m.Adopt.ValueBool()
	}
	store, opts, err := r.open(ctx, m, h.Claim)
	if err != nil {
		return ref, h, err
	}
	ssm, inSSM := store.(*keystore.Store)
	if inSSM {
		if err := ssm.Claim(ctx); err != nil {
			return ref, h, err
		}
	}
	if from != nil {
		if err := from.Restore(ctx, store); err != nil {
			return ref, h, otherKeys(err, m)
		}
	}
	ref, err = pki.Bootstrap(ctx, store, m.Cluster.ValueString(), r.Session.Now(), r.Session.Rand, opts)
	if err == nil && inSSM {
		if err = ssm.Check(ctx); err == nil {
			r.Session.Claims.Made(h.Claim, nil, ssm)
		}
	}
	return ref, h, err
}

// open opens the key store of a model.
func (r *pkiResource) open(ctx context.Context, m pkiModel, claim infraaws.Claim) (pki.Store, pki.Options, error) {
	validity := pki.DefaultCAValidity
	if s := m.CAValidity.ValueString(); s != "" {
		var err error
		if validity, err = pki.ParseCAValidity(s); err != nil {
			return nil, pki.Options{}, err
		}
	}
	opts := pki.Options{Store: m.KeyStore.ValueString(), CAValidity: validity,
		Generations: reference.GenerationsFrom(m.Generations), Authorities: m.given}
	if opts.Store == pki.StoreState {
		ref, _ := reference.OfPKI.Read(ctx, m.Ref, &diag.Diagnostics{})
		return ref.Ref().MemoryStore(), opts, nil
	}
	store, err := r.keyStore(ctx, m, claim)
	if err != nil {
		return nil, opts, err
	}
	opts.Prefix, opts.KMSKeyID, opts.Region = m.Prefix.ValueString(), m.KMSKeyID.ValueString(), store.Region()
	return store, opts, nil
}

func (r *pkiResource) keyStore(ctx context.Context, m pkiModel, claim infraaws.Claim) (*keystore.Store, error) {
	client, err := r.Session.AWS(ctx)
	if err != nil {
		return nil, err
	}
	region, _ := m.Ref.Attributes()["region"].(types.String)
	return keystore.New(client, keystore.Config{
		Cluster: m.Cluster.ValueString(), Prefix: m.Prefix.ValueString(), KMSKeyID: m.KMSKeyID.ValueString(),
		Region: region.ValueString(), Tags: tf.StringMap(m.Tags), Claim: claim,
	}), nil
}

func (r *pkiResource) Read(ctx context.Context, req resource.ReadRequest, resp *resource.ReadResponse) {
	var m pkiModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	warnOfExpiringAuthorities(m.ref(ctx), r.Session.Now(), &resp.Diagnostics)
	if m.KeyStore.ValueString() != pki.StoreSSM {
		return
	}
	ctx, cancel := argument.WithTimeout(ctx, m.Timeouts.Read, argument.ReadTimeout, &resp.Diagnostics)
	defer cancel()
	title := "Cannot refresh the keys of cluster " + m.Cluster.ValueString()
	if _, ok := r.Session.AWSForRead(ctx, title, &resp.Diagnostics); !ok {
		return
	}
	h := session.ReadOwnership(ctx, req.Private, m.Claim, &resp.Diagnostics)
	store, err := r.openOwned(ctx, m, h)
	var drift []finding.Finding
	if err == nil {
		err = store.Check(ctx)
	}
	if err == nil {
		h, err = r.recovered(ctx, store, h)
	}
	if err == nil {
		r.settle(ctx, store)
		drift, err = r.observe(ctx, store, m, h)
	}
	if err != nil {
		session.AddError(&resp.Diagnostics, title, err)
		return
	}
	m.Claim, m.Drift = tf.OptionalString(h.ID), argument.DriftValue(drift)
	tf.WritePrivate(ctx, resp.Private, session.OwnershipKey, h, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// Update implements resource.Resource. Certificates that differ from the state are restored before
// anything is rotated.
func (r *pkiResource) Update(ctx context.Context, req resource.UpdateRequest, resp *resource.UpdateResponse) {
	var m, state pkiModel
	resp.Diagnostics.Append(req.Plan.Get(ctx, &m)...)
	resp.Diagnostics.Append(req.State.Get(ctx, &state)...)
	m.given, _ = readAuthorities(ctx, req.Config, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	if argument.OnlyProtection(req) {
		resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
		return
	}
	ctx, cancel := argument.WithTimeout(ctx, m.Timeouts.Update, argument.PKITimeout, &resp.Diagnostics)
	defer cancel()
	checkRotationStep(state.ref(ctx).Generations, m.Generations, &resp.Diagnostics)
	wanted := reference.GenerationsFrom(m.Generations)
	session.AddFieldErrors(ctx, req.Plan, m.given.Check(wanted, state.ref(ctx).Public(), r.Session.Now()), &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	h := session.ReadOwnership(ctx, req.Private, state.Claim, &resp.Diagnostics)
	if m.KeyStore.ValueString() == pki.StoreSSM {
		client, err := r.Session.AWS(ctx)
		if err == nil {
			h, err = r.Session.ForUpdate(ctx, client, h, m.Adopt)
		}
		if err == nil {
			err = r.repair(ctx, m, state, h)
		}
		if err != nil {
			session.AddError(&resp.Diagnostics, "Cannot repair the key store of cluster "+m.Cluster.ValueString(), err)
			return
		}
	}
	ref, err := r.rotate(ctx, m, state, h)
	if err != nil {
		session.AddError(&resp.Diagnostics, "Cannot rotate the keys of cluster "+m.Cluster.ValueString(), err)
		return
	}
	m.Ref = reference.PKIValue(ctx, ref)
	tf.WritePrivate(ctx, resp.Private, session.OwnershipKey, h, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

func (r *pkiResource) Delete(ctx context.Context, req resource.DeleteRequest, resp *resource.DeleteResponse) {
	var m pkiModel
	resp.Diagnostics.Append(req.State.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() || !argument.MayDelete(ctx, "pki "+m.Cluster.ValueString(), req.State, &resp.Diagnostics) || m.KeyStore.ValueString() != pki.StoreSSM {
		return
	}
	ctx, cancel := argument.WithTimeout(ctx, m.Timeouts.Delete, argument.PKITimeout, &resp.Diagnostics)
	defer cancel()
	h := session.ReadOwnership(ctx, req.Private, m.Claim, &resp.Diagnostics)
	store, err := r.openOwned(ctx, m, h)
	if err == nil {
		err = store.Purge(ctx)
	}
	r.Session.Claims.Gone(h.Claim)
	if err != nil && !session.AddKept(&resp.Diagnostics, "The key store of cluster "+m.Cluster.ValueString(), err) {
		session.AddError(&resp.Diagnostics, "Cannot delete the keys of cluster "+m.Cluster.ValueString(), err)
	}
}

// ImportState implements resource.ResourceWithImportState. The id is the cluster's name, followed by the prefix unless that
// is the default one.
func (r *pkiResource) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	h := r.find(ctx, req.ID, &resp.State, &resp.Diagnostics)
	if !resp.Diagnostics.HasError() {
		tf.WritePrivate(ctx, resp.Private, session.OwnershipKey, h, &resp.Diagnostics)
	}
}

// find sets a state to the keys that an import id names. It changes nothing in AWS, and reads no private key.
func (r *pkiResource) find(ctx context.Context, id string, into owned.Target, diags *diag.Diagnostics) (h session.Ownership) {
	var m pkiModel
	cluster, prefix, elsewhere := strings.Cut(id, "/")
	if prefix = "/" + prefix; !elsewhere {
		prefix = keystore.DefaultPrefix(cluster)
	}
	diags.Append(into.SetAttribute(ctx, path.Root("id"), cluster)...)
	diags.Append(into.Get(ctx, &m)...) // null, but of the right types
	m.ID, m.Cluster = types.StringValue(cluster), types.StringValue(cluster)
	m.KeyStore, m.Prefix = types.StringValue(pki.StoreSSM), types.StringValue(prefix)
	m.CAValidity = types.StringValue(tf.ShortDuration(pki.DefaultCAValidity))
	m.TagsAll = r.Session.FoundTags(m.Tags)
	store, opts, err := r.open(ctx, m, infraaws.Claim{})
	var ref pki.Ref
	if err == nil {
		ref, err = pki.LoadRef(ctx, store, cluster, opts)
	}
	if err == nil {
		h, err = r.importOwnership(ctx, store)
	}
	if err != nil {
		session.AddError(diags, "Cannot import the keys of cluster "+cluster, err)
		return h
	}
	if !ref.Generations.Equal(pki.Generations{}) {
		m.Generations = reference.GenerationsValue(ctx, ref.Generations)
	}
	m.Ref, m.Drift, m.Claim = reference.PKIValue(ctx, ref), tf.NoDrift(), tf.OptionalString(h.ID)
	diags.Append(into.Set(ctx, &m)...)
	return h
}

// parameterPrefix accepts a path of SSM parameters.
func parameterPrefix() validator.String {
	return tf.Check("a parameter path such as /k8s/demo/pki/", func(s string) error {
		switch {
		case !parameterName.MatchString(s):
			return fmt.Errorf("%q must begin and end with a slash, and hold letters, digits and _.- between slashes", s)
		case strings.HasPrefix(s, "/aws") || strings.HasPrefix(s, "/ssm"):
			return errors.New("AWS reserves names that begin with aws or ssm; choose another prefix")
		}
		return nil
	})
}

var parameterName = regexp.MustCompile(`^(/[a-zA-Z0-9_.-]+)+/$`)
