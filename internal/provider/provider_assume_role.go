package provider

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-jsontypes/jsontypes"
	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// assumeRoleModel is assume_role.
type assumeRoleModel struct {
	RoleARN        types.String         `tfsdk:"role_arn"`
	SessionName    types.String         `tfsdk:"session_name"`
	ExternalID     types.String         `tfsdk:"external_id"`
	SourceIdentity types.String         `tfsdk:"source_identity"`
	Policy         jsontypes.Normalized `tfsdk:"policy"`
	Tags           types.Map            `tfsdk:"tags"`
	TransitiveKeys types.Set            `tfsdk:"transitive_tag_keys"`
	Duration       timetypes.GoDuration `tfsdk:"duration"`
}

// The limits of AWS.
// https://docs.aws.amazon.com/STS/latest/APIReference/API_AssumeRole.html
// https://docs.aws.amazon.com/IAM/latest/UserGuide/id_session-tags.html
const maxSessionTags = 50

var (
	sessionTagText = regexp.MustCompile(`^[\p{L}\p{Z}\p{N}_.:/=+\-@]*$`)
	sourceIdentity = regexp.MustCompile(`^[\w+=,.@-]{2,64}$`)
)

func assumeRoleAttribute() schema.SingleNestedAttribute {
	key := []validator.String{stringvalidator.LengthBetween(1, 128), tf.Check("a key of a session tag", func(s string) error {
		if strings.HasPrefix(strings.ToLower(s), "aws:") {
			return fmt.Errorf("%q begins with aws:, which is reserved for AWS", s)
		}
		return sessionTag(s)
	})}
	return schema.SingleNestedAttribute{
		Optional:            true,
		MarkdownDescription: "IAM role to assume with the credentials found. Default: none.",
		Attributes: map[string]schema.Attribute{
			"role_arn":     schema.StringAttribute{Required: true, MarkdownDescription: "ARN of the role."},
			"session_name": schema.StringAttribute{Optional: true, MarkdownDescription: "Session name. Default: one chosen by the AWS SDK."},
			"external_id":  schema.StringAttribute{Optional: true, MarkdownDescription: "External id that the role's trust policy requires. Default: none."},
			"source_identity": schema.StringAttribute{
				Optional: true, MarkdownDescription: "Who is behind the session, for CloudTrail and for `aws:SourceIdentity` in policies. It stays when the session assumes another role. Needs `sts:SetSourceIdentity`. Default: none.",
				Validators: []validator.String{stringvalidator.RegexMatches(sourceIdentity, "a source identity has 2 to 64 letters, digits and characters of _+=,.@-")},
			},
			"policy": schema.StringAttribute{Optional: true, CustomType: jsontypes.NormalizedType{}, MarkdownDescription: "IAM policy (JSON) that restricts the session further. Default: none."},
			"tags": schema.MapAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Session tags, `aws:PrincipalTag` in policies. They count before the role's own tags of the same keys. Needs `sts:TagSession`. At most 50. Default: none.",
				Validators: []validator.Map{
					mapvalidator.SizeBetween(1, maxSessionTags), mapvalidator.KeysAre(key...),
					mapvalidator.ValueStringsAre(stringvalidator.LengthAtMost(256), tf.Check("a value of a session tag", sessionTag)), distinctKeys{},
				},
			},
			"transitive_tag_keys": schema.SetAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Keys of `tags` that a role keeps which is assumed with this session. Default: none.",
				Validators:          []validator.Set{setvalidator.SizeAtLeast(1), setvalidator.ValueStringsAre(key...)},
			},
			"duration": schema.StringAttribute{
				Optional: true, CustomType: timetypes.GoDurationType{},
				MarkdownDescription: "Lifetime of the temporary credentials, as a duration such as `1h`. They are renewed before they expire. Default: `15m`.",
				Validators:          []validator.String{tf.PositiveDuration()},
			},
		},
		Validators: []validator.Object{transitiveKeys{}},
	}
}

func sessionTag(s string) error {
	if !sessionTagText.MatchString(s) {
		return fmt.Errorf("%q has a character that a session tag cannot have: letters, digits, spaces and _.:/=+-@ are allowed", s)
	}
	return nil
}

// distinctKeys refuses keys that differ only in case: STS takes them for the same key.
type distinctKeys struct{}

// Description implements validator.Describer.
func (distinctKeys) Description(context.Context) string {
	return "keys must differ in more than their case"
}

// MarkdownDescription implements validator.Describer.
func (d distinctKeys) MarkdownDescription(ctx context.Context) string { return d.Description(ctx) }

// ValidateMap implements validator.Map.
func (distinctKeys) ValidateMap(_ context.Context, req validator.MapRequest, resp *validator.MapResponse) {
	seen := map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(req.ConfigValue.Elements())) {
		if other, twice := seen[strings.ToLower(key)]; twice {
			resp.Diagnostics.AddAttributeError(req.Path, "Duplicate tag", fmt.Sprintf("%q and %q differ only in case, and AWS takes them for the same key.", other, key))
		}
		seen[strings.ToLower(key)] = key
	}
}

// transitiveKeys refuses transitive keys that are not keys of tags.
type transitiveKeys struct{}

// Description implements validator.Describer.
func (transitiveKeys) Description(context.Context) string {
	return "transitive_tag_keys must be keys of tags"
}

// MarkdownDescription implements validator.Describer.
func (t transitiveKeys) MarkdownDescription(ctx context.Context) string { return t.Description(ctx) }

// ValidateObject implements validator.Object.
func (transitiveKeys) ValidateObject(ctx context.Context, req validator.ObjectRequest, resp *validator.ObjectResponse) {
	var diags diag.Diagnostics
	role, ok := tf.Object[assumeRoleModel](ctx, req.ConfigValue, &diags)
	if !ok || role.Tags.IsUnknown() || !tf.AllKnown(role.TransitiveKeys) {
		return
	}
	given := role.Tags.Elements()
	for _, key := range tf.Strings(role.TransitiveKeys.Elements()) {
		if _, has := given[key]; !has {
			resp.Diagnostics.AddAttributeError(req.Path.AtName("transitive_tag_keys"), "Unknown tag", fmt.Sprintf("%q is not a key of tags: only tags of this session can be kept by the next role.", key))
		}
	}
}

// config returns how the role is assumed, nil without one.
func (m assumeRoleModel) config() *infraaws.AssumeRole {
	if m.RoleARN.ValueString() == "" {
		return nil
	}
	return &infraaws.AssumeRole{
		RoleARN:        m.RoleARN.ValueString(),
		SessionName:    m.SessionName.ValueString(),
		ExternalID:     m.ExternalID.ValueString(),
		SourceIdentity: m.SourceIdentity.ValueString(),
		Policy:         m.Policy.ValueString(),
		Tags:           tf.StringMap(m.Tags),
		TransitiveTags: tf.Strings(m.TransitiveKeys.Elements()),
		Duration:       tf.Duration(m.Duration, 0),
	}
}
