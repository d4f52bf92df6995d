package provider

import (
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// ignoreRulesAttribute is `ignore_rules` of k8s_network.
func ignoreRulesAttribute() schema.SingleNestedAttribute {
	prefixes := path.MatchRelative().AtParent().AtName("description_prefixes")
	return schema.SingleNestedAttribute{
		Optional: true,
		MarkdownDescription: "Rules of others in the cluster's security groups, such as those that the AWS Load Balancer Controller adds. A rule that fits one of these is no drift and stays; " +
			"it goes when its security group is deleted. Looking at them needs `ec2:DescribeSecurityGroupRules`. Changed in place. " +
			"Default: every rule that is not this resource's is drift, and apply removes it.",
		Attributes: map[string]schema.Attribute{
			"description_prefixes": schema.SetAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Beginnings of the rule's description, such as `elbv2.k8s.aws/`.",
				Validators: []validator.Set{
					setvalidator.SizeAtLeast(1), setvalidator.ValueStringsAre(stringvalidator.LengthBetween(1, 255)),
					setvalidator.AtLeastOneOf(prefixes, path.MatchRelative().AtParent().AtName("tag_keys")),
				},
			},
			"tag_keys": schema.SetAttribute{
				Optional: true, ElementType: types.StringType,
				MarkdownDescription: "Keys of tags that the rule has, whatever their values.",
				Validators:          []validator.Set{setvalidator.SizeAtLeast(1), setvalidator.ValueStringsAre(stringvalidator.LengthBetween(1, 128))},
			},
		},
	}
}

// noIgnoreRules is `ignore_rules` left out.
func noIgnoreRules() types.Object {
	typ, _ := ignoreRulesAttribute().GetType().(types.ObjectType)
	return types.ObjectNull(typ.AttrTypes)
}

// ignoreRulesFrom reads `ignore_rules`; null chooses nothing.
func ignoreRulesFrom(o types.Object) infraaws.RuleFilter {
	elements := func(name string) []string {
		s, _ := o.Attributes()[name].(types.Set)
		return tf.Strings(s.Elements())
	}
	return infraaws.RuleFilter{DescriptionPrefixes: elements("description_prefixes"), TagKeys: elements("tag_keys")}
}
