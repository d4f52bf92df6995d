package roles

import (
	"net/netip"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/cidrtypes"
	"github.com/hashicorp/terraform-plugin-framework-validators/setvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// allowedCIDRs is the argument of that name. ports says to what the networks have access, who says who must
// have it.
func allowedCIDRs[M, S any](ports, who string, join func(*M, *S) (*types.Set, *[]netip.Prefix)) setting[M, S] {
	return newSetting(schema.SetAttribute{
		Optional: true, ElementType: cidrtypes.IPv4PrefixType{},
		MarkdownDescription: "Networks that may reach " + ports + ", for machines without security groups: an nftables rule set on the machines drops what others send there, and a removed rule is drift. " +
			"It must have " + who + ". IPv6 is not allowed. Changed in place, and nothing restarts; without it the rules go. Default: none; everybody may, as far as the network lets them.",
		Validators: []validator.Set{setvalidator.SizeAtLeast(1), setvalidator.ValueStringsAre(tf.CIDR(component.AnyCIDR))},
	}, prefixes, join)
}
