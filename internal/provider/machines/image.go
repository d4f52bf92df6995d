package machines

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// imageFilterModel is image_filter of k8s_machine.
type imageFilterModel struct {
	Name   types.String `tfsdk:"name"`
	Owners types.Set    `tfsdk:"owners"`
}

func imageFilterAttribute() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "Finds the image for the next launch, in place of `ami`: the newest available image for the processors of `instance_type` with an EBS root volume. A change or a newer " +
			"image takes effect when the machine is replaced: see `image_policy`. Default: none.",
		Attributes: map[string]schema.Attribute{
			"name": schema.StringAttribute{
				Required: true, MarkdownDescription: "Name of the image, such as `debian-13-amd64-*`: `*` stands for any text, and `?` for one character.",
				Validators: []validator.String{stringvalidator.LengthAtLeast(1)},
			},
			"owners": schema.SetAttribute{
				Required: true, ElementType: types.StringType,
				MarkdownDescription: "Who owns the image: ids of AWS accounts, `self`, `amazon` or `aws-marketplace`. Everyone can publish an image of any name. Debian's account is `136693071363`.",
				Validators: []validator.Set{
					setvalidator.SizeAtLeast(1),
					setvalidator.ValueStringsAre(tf.Check("an owner of images", awsmachine.CheckImageOwner)),
				},
			},
		},
	}
}

// imageFilter returns the filter of the machine's image, nil without one.
func (m machineModel) imageFilter(ctx context.Context, diags *diag.Diagnostics) *awsmachine.ImageFilter {
	v, ok := tf.Object[imageFilterModel](ctx, m.ImageFilter, diags)
	if !ok {
		return nil
	}
	return &awsmachine.ImageFilter{Name: v.Name.ValueString(), Owners: slices.Sorted(slices.Values(tf.Strings(v.Owners.Elements())))}
}

func amiReference() validator.String {
	return tf.Check("an AMI id or resolve:ssm:<parameter>", func(s string) error {
		if amiID.MatchString(s) || strings.HasPrefix(s, "resolve:ssm:/") {
			return nil
		}
		return fmt.Errorf("%q is neither an AMI id, such as ami-0123456789abcdef0, nor resolve:ssm:/some/parameter", s)
	})
}

var amiID = regexp.MustCompile(`^ami-[0-9a-f]{8,17}$`)
