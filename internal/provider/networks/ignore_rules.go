package networks

import (
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	awsnetwork "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// ignoreRulesAttribute is `ignore_rules` of k8s_network.
func ignoreRulesAttribute() schema.SingleNestedAttribute {
	prefixes := path.MatchRelative().AtParent().AtName("description_prefixes")
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "Rules in the cluster's security groups that other programs manage, such as the AWS Load Balancer Controller. Matching rules are neither drift nor removed. Requires " +
			"`ec2:DescribeSecurityGroupRules`. Changed in place. Default: none; apply removes every rule of others.",
		Attributes: map[string]schema.Attribute{
			"description_prefixes": schema.SetAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Prefixes of the rule's description, such as `elbv2.k8s.aws/`. Default: none.",
				Validators: []validator.Set{
					setvalidator.SizeAtLeast(1), setvalidator.ValueStringsAre(stringvalidator.LengthBetween(1, 255)),
					setvalidator.AtLeastOneOf(prefixes, path.MatchRelative().AtParent().AtName("tag_keys")),
				},
			},
			"tag_keys": schema.SetAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Tag keys of the rule, whatever their values. Default: none.",
				Validators:          []validator.Set{setvalidator.SizeAtLeast(1), setvalidator.ValueStringsAre(stringvalidator.LengthBetween(1, 128))},
			},
		},
	}
}

// ignoreRulesFrom reads `ignore_rules`. If it is null, the filter matches nothing.
func ignoreRulesFrom(o types.Object) awsnetwork.RuleFilter {
	elements := func(name string) []string {
		s, _ := o.Attributes()[name].(types.Set)
		return tf.Strings(s.Elements())
	}
	return awsnetwork.RuleFilter{DescriptionPrefixes: elements("description_prefixes"), TagKeys: elements("tag_keys")}
}
