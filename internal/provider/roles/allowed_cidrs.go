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

// allowedCIDRs is the argument of that name. ports are the ports that it protects, and who says whose addresses
// it must contain.
func allowedCIDRs[M, S any](ports, who string, join func(*M, *S) (*types.Set, *[]netip.Prefix)) setting[M, S] {
	return newSetting(schema.SetAttribute{
		Optional: true, ElementType: cidrtypes.IPv4PrefixType{},
		MarkdownDescription: "IPv4 networks that may reach " + ports + ". nftables drops other packets to these ports. The list must contain " + who + ". " +
			"For machines without security groups. Changed in place. Default: none; no limit.",
		Validators: []validator.Set{setvalidator.SizeAtLeast(1), setvalidator.ValueStringsAre(tf.CIDR(component.AnyCIDR))},
	}, prefixes, join)
}
