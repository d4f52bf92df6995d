package provider

import (
	"context"
	"fmt"
	"math/big"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// maxPatience is the largest factor: 100 times 60 minutes are four days.
const maxPatience = 100

// patienceFrom is the environment variable with the default of the argument patience.
const patienceFrom = "K8S_PATIENCE"

// checkPatience returns the factor, or an error.
func checkPatience(n *big.Float) (float64, error) {
	factor, _ := n.Float64()
	if !(factor >= 1 && factor <= maxPatience) {
		return 0, fmt.Errorf("%s is not a number between 1 and %d: the provider can wait longer than by default, but not shorter", n.Text('g', 10), maxPatience)
	}
	return factor, nil
}

// patienceFactor validates the argument patience.
type patienceFactor struct{}

func (patienceFactor) Description(context.Context) string               { return "a number between 1 and 100" }
func (v patienceFactor) MarkdownDescription(ctx context.Context) string { return v.Description(ctx) }

func (patienceFactor) ValidateNumber(_ context.Context, req validator.NumberRequest, resp *validator.NumberResponse) {
	if req.ConfigValue.IsNull() || req.ConfigValue.IsUnknown() {
		return
	}
	if _, err := checkPatience(req.ConfigValue.ValueBigFloat()); err != nil {
		resp.Diagnostics.AddAttributeError(req.Path, "Unusable patience", err.Error()+".")
	}
}

// configurePatience sets the factor by which waits are longer. Of an argument that is not known yet, which only a plan
// can have, nothing is waited for longer.
func configurePatience(d *session.Session, env environment, m providerModel, diags *diag.Diagnostics) {
	d.Patience = 1
	n, text := m.Patience.ValueBigFloat(), env.Getenv(patienceFrom)
	if m.Patience.IsUnknown() || m.Patience.IsNull() && text == "" {
		return
	}
	from := ""
	if m.Patience.IsNull() {
		var err error
		if n, _, err = big.ParseFloat(text, 10, 53, big.ToNearestEven); err != nil {
			diags.AddAttributeError(path.Root("patience"), "Unusable patience", fmt.Sprintf("%s in the environment is %q, and must be a number between 1 and %d.", patienceFrom, text, maxPatience))
			return
		}
		from = patienceFrom + " in the environment: "
	}
	factor, err := checkPatience(n)
	if err != nil {
		diags.AddAttributeError(path.Root("patience"), "Unusable patience", from+err.Error()+".")
		return
	}
	d.Patience = factor
}

// patience returns the factor with which the provider was configured; 1 before that.
func (p *Provider) patience() float64 {
	if n := len(p.Sessions); n > 0 {
		return p.Sessions[n-1].Patience
	}
	return 1
}
