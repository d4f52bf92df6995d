package provider

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// holding is what a resource keeps in private state about what it owns in AWS: its claim, and the
// account and region where that is.
type holding struct {
	infraaws.Claim
	Account string `json:"account,omitempty"`
	Region  string `json:"region,omitempty"`
	// Imported is set until the first apply after an import.
	Imported bool `json:"imported,omitempty"`
}

// holdingKey is the private-state entry of holding.
const holdingKey = "holding"

// settleTimeout limits what a refresh spends on settling a claim. It is no loss if that fails: the
// next refresh tries again.
const settleTimeout = 5 * time.Second

// newHolding returns a holding with a claim that nobody has used.
func (d *providerData) newHolding(ctx context.Context, client *infraaws.Client) (holding, error) {
	account, arn, err := d.identity(ctx, client)
	if err != nil {
		return holding{}, err
	}
	id, err := d.claims.next(d.rand)
	if err != nil {
		return holding{}, err
	}
	return holding{Claim: infraaws.NewClaim(id, arn, d.now()), Account: account, Region: client.Region}, nil
}

// imported returns the holding of something that has been found with a claim, or with none.
func (d *providerData) imported(ctx context.Context, client *infraaws.Client, found infraaws.Claim) (holding, error) {
	h, err := d.newHolding(ctx, client)
	if found.ID != "" {
		h.Claim = found
	}
	h.Imported = true
	return h, err
}

// checked returns an accountError if the holding is of another account or region than the
// provider's.
func (d *providerData) checked(ctx context.Context, client *infraaws.Client, h holding) error {
	if h.Account == "" {
		return nil
	}
	account, arn, err := d.identity(ctx, client)
	if err != nil {
		return err
	}
	if account != h.Account || client.Region != h.Region {
		return &accountError{wanted: h, account: account, region: client.Region, caller: arn}
	}
	return nil
}

// forUpdate returns the holding for a change: checked, and with a claim that adopts if the
// configuration says so.
func (d *providerData) forUpdate(ctx context.Context, client *infraaws.Client, h holding, adopt types.Bool) (holding, error) {
	if err := d.checked(ctx, client, h); err != nil {
		return h, err
	}
	if h.ID == "" && adopt.ValueBool() {
		made, err := d.newHolding(ctx, client)
		if err != nil {
			return h, err
		}
		h = made
	}
	h.Adopt, h.Imported = adopt.ValueBool(), false
	return h, nil
}

// elsewhere adds an error if the holding is of another account or region than the provider's. what
// names the object that is to be deleted.
func (d *providerData) elsewhere(ctx context.Context, what string, h holding, diags *diag.Diagnostics) {
	if h.Account == "" {
		return
	}
	client, err := d.aws(ctx)
	if err == nil {
		err = d.checked(ctx, client, h)
	}
	if err != nil {
		addError(diags, "Cannot delete "+what, err)
	}
}

// identity returns the account and the ARN of the provider's credentials. It asks once.
func (d *providerData) identity(ctx context.Context, client *infraaws.Client) (account, arn string, err error) {
	d.caller.Lock()
	defer d.caller.Unlock()
	if d.caller.account == "" {
		if d.caller.account, d.caller.arn, err = client.Caller(ctx); err != nil {
			return "", "", err
		}
	}
	return d.caller.account, d.caller.arn, nil
}

// settle records that the state holds the claim. Whoever may only read, as for a plan, may not do
// that, which is no error.
func (d *providerData) settle(ctx context.Context, client *infraaws.Client, h holding, ids []string) {
	ctx, cancel := context.WithTimeout(ctx, settleTimeout)
	defer cancel()
	_ = client.Settle(ctx, h.Claim, ids, d.now())
}

// accountError says that the provider's account or region is not that of the state.
type accountError struct {
	wanted                  holding
	account, region, caller string
}

func (e *accountError) Error() string {
	return fmt.Sprintf("the state expects it in account %s, region %s, and the provider works in account %s, region %s (as %s)",
		e.wanted.Account, e.wanted.Region, e.account, e.region, e.caller)
}

// ownershipAdvice says what to do about something that is another's, or is not here. It is empty
// for other errors.
func ownershipAdvice(err error) string {
	var claimed *infraaws.ClaimedError
	var elsewhere *accountError
	switch {
	case errors.As(err, &elsewhere):
		return "Nothing was looked at, forgotten or changed. Use the credentials and the region with which this was made (region, profile, assume_role)."
	case errors.As(err, &claimed) && claimed.Known:
		return "Nothing was changed. Another state has taken it over, or somebody has imported it there. To give it up, remove the resource from this state with " +
			"`terraform state rm`. To take it back, set `adopt = true` on this resource and run `terraform apply -refresh=false` once."
	case errors.As(err, &claimed) && claimed.Raced:
		return "Another apply under this cluster's name went on at the same time and has it now. Give one of the two clusters another name, or apply both from one state."
	case errors.As(err, &claimed):
		return "Nothing was changed. If it belongs to another state, such as a colleague's, give this cluster another name. If it is yours, because its state was lost or " +
			"it was removed with `terraform state rm`, import it, or set `adopt = true` on this resource for one apply. If this resource was only renamed in the " +
			"configuration, write a `moved` block. If it is to be replaced, the old one has to go first: remove `create_before_destroy` from its lifecycle block and " +
			"from those of the resources that depend on it."
	}
	return ""
}

// addKept warns that a delete has left what is another's, and reports whether err says so.
func addKept(diags *diag.Diagnostics, what string, err error) bool {
	var claimed *infraaws.ClaimedError
	if !errors.As(err, &claimed) {
		return false
	}
	diags.AddWarning(what+" was kept", err.Error()+"\n\nIt is no longer this state's, so nothing of it was deleted. It is out of this state now.")
	return true
}

// readHolding reads the holding from private state. Terraform loses that in two cases: the provider
// dies during an update, or a tainted object is replaced, whose deletion gets none. Then claim, the
// attribute of that name, is all that is left.
func readHolding(ctx context.Context, p tf.PrivateState, claim types.String, diags *diag.Diagnostics) holding {
	h := tf.ReadPrivate[holding](ctx, p, holdingKey, diags)
	h.ID = cmp.Or(h.ID, claim.ValueString())
	return h
}

// checkImported refuses to replace what was imported and is another cluster's. What was made here
// is replaced when its cluster gets another name. ends says what a replacement would do.
func (h holding) checkImported(what string, had, wanted types.String, ends string, diags *diag.Diagnostics) {
	if !h.Imported || wanted.IsUnknown() || wanted.Equal(had) {
		return
	}
	diags.AddAttributeError(path.Root("cluster"), "Imported "+what+" of another cluster",
		fmt.Sprintf("This state has imported the %[1]s of cluster %[2]s, and cluster is %[3]q in the configuration. To replace the %[1]s would %[4]s.\n\n"+
			"Remove it from this state with `terraform state rm`, and import the %[1]s of cluster %[3]s instead. If the %[1]s of cluster %[2]s is the right one, set cluster = %[2]q.",
			what, had.ValueString(), wanted.ValueString(), ends))
}

// lost reports whether the private state was lost, see readHolding.
func (h holding) lost() bool { return h.Account == "" && h.ID != "" }

// recovered returns a lost holding as the refresh of something that has its claim finds it.
func (d *providerData) recovered(ctx context.Context, client *infraaws.Client, h holding, found infraaws.Claim) (holding, error) {
	if !h.lost() {
		return h, nil
	}
	account, _, err := d.identity(ctx, client)
	if found.ID == h.ID {
		h.Claim = found
	}
	h.Account, h.Region = account, client.Region
	return h, err
}

// What a claim protects: something in AWS with its keys, or roles and addons.
const ()
