package session

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
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// Ownership is what a resource keeps in private state about what it owns in AWS: its claim, and the
// account and region where that is.
type Ownership struct {
	infraaws.Claim
	Account string `json:"account,omitempty"`
	Region  string `json:"region,omitempty"`
	// Imported is set until the first apply after an import.
	Imported bool `json:"imported,omitempty"`
}

// OwnershipKey is the private-state entry of ownership.
const OwnershipKey = "ownership"

// SettleTimeout limits what a refresh spends on settling a claim. It is no loss if that fails: the
// next refresh tries again.
const SettleTimeout = 5 * time.Second

// NewOwnership returns an ownership with a claim that nobody has used.
func (d *Session) NewOwnership(ctx context.Context, client *infraaws.Client) (Ownership, error) {
	account, arn, err := d.Identity(ctx, client)
	if err != nil {
		return Ownership{}, err
	}
	id, err := d.Claims.next(d.Rand)
	if err != nil {
		return Ownership{}, err
	}
	return Ownership{Claim: infraaws.NewClaim(id, arn, d.Now()), Account: account, Region: client.Region}, nil
}

// Imported returns the ownership of something that has been found with a claim, or with none.
func (d *Session) Imported(ctx context.Context, client *infraaws.Client, found infraaws.Claim) (Ownership, error) {
	h, err := d.NewOwnership(ctx, client)
	if found.ID != "" {
		h.Claim = found
	}
	h.Imported = true
	return h, err
}

// Checked returns an accountError if the ownership is of another account or region than the
// provider's.
func (d *Session) Checked(ctx context.Context, client *infraaws.Client, h Ownership) error {
	if h.Account == "" {
		return nil
	}
	account, arn, err := d.Identity(ctx, client)
	if err != nil {
		return err
	}
	if account != h.Account || client.Region != h.Region {
		return &accountError{wanted: h, account: account, region: client.Region, caller: arn}
	}
	return nil
}

// ForUpdate returns the ownership for a change: checked, and with a claim that adopts if the
// configuration says so.
func (d *Session) ForUpdate(ctx context.Context, client *infraaws.Client, h Ownership, adopt types.Bool) (Ownership, error) {
	if err := d.Checked(ctx, client, h); err != nil {
		return h, err
	}
	if h.ID == "" && adopt.ValueBool() {
		made, err := d.NewOwnership(ctx, client)
		if err != nil {
			return h, err
		}
		h = made
	}
	h.Adopt, h.Imported = adopt.ValueBool(), false
	return h, nil
}

// Elsewhere adds an error if the ownership is of another account or region than the provider's. what
// names the object that is to be deleted.
func (d *Session) Elsewhere(ctx context.Context, what string, h Ownership, diags *diag.Diagnostics) {
	if h.Account == "" {
		return
	}
	client, err := d.AWS(ctx)
	if err == nil {
		err = d.Checked(ctx, client, h)
	}
	if err != nil {
		AddError(diags, "Cannot delete "+what, err)
	}
}

// Identity returns the account and the ARN of the provider's credentials. It asks once.
func (d *Session) Identity(ctx context.Context, client *infraaws.Client) (account, arn string, err error) {
	d.caller.Lock()
	defer d.caller.Unlock()
	if d.caller.account == "" {
		if d.caller.account, d.caller.arn, err = client.Caller(ctx); err != nil {
			return "", "", err
		}
	}
	return d.caller.account, d.caller.arn, nil
}

// Settle records that the state holds the claim. Whoever may only read, as for a plan, may not do
// that, which is no error.
func (d *Session) Settle(ctx context.Context, client *infraaws.Client, h Ownership, ids []string) {
	ctx, cancel := patience.Within(ctx, SettleTimeout)
	defer cancel()
	_ = client.Settle(ctx, h.Claim, ids, d.Now())
}

// accountError says that the provider's account or region is not that of the state.
type accountError struct {
	wanted                  Ownership
	account, region, caller string
}

func (e *accountError) Error() string {
	return fmt.Sprintf("the state expects it in account %s, region %s, and the provider works in account %s, region %s (as %s)",
		e.wanted.Account, e.wanted.Region, e.account, e.region, e.caller)
}

// ownershipAdvice says what to do about an object of another owner, or one that is not in this
// account and region. It is empty for other errors.
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
		return "Another apply for a cluster of this name ran at the same time and owns it now. Give one of the two clusters another name, or apply both from one state."
	case errors.As(err, &claimed):
		return "Nothing was changed. If another state uses it, such as a colleague's, give this cluster another name. If it is yours, because its state was lost or it was removed " +
			"with `terraform state rm`, import it, or set `adopt = true` on this resource for one apply. If this resource was only renamed in the configuration, write a `moved` " +
			"block. If this is a replacement, the old object must be deleted first: remove `create_before_destroy` from its lifecycle block and from those of the resources that " +
			"depend on it."
	}
	return ""
}

// AddKept warns that a delete has left an object of another state, and reports whether err says so.
func AddKept(diags *diag.Diagnostics, what string, err error) bool {
	var claimed *infraaws.ClaimedError
	if !errors.As(err, &claimed) {
		return false
	}
	diags.AddWarning(what+" was kept", err.Error()+"\n\nThis state no longer owns it, so nothing of it was deleted. The resource was removed from this state.")
	return true
}

// ReadOwnership reads the ownership from private state. Terraform loses that in two cases: the provider
// dies during an update, or a tainted object is replaced, whose deletion gets none. Then claim, the
// attribute of that name, is all that is left.
func ReadOwnership(ctx context.Context, p tf.PrivateState, claim types.String, diags *diag.Diagnostics) Ownership {
	h := tf.ReadPrivate[Ownership](ctx, p, OwnershipKey, diags)
	h.ID = cmp.Or(h.ID, claim.ValueString())
	return h
}

// CheckImported refuses to replace an imported object of another cluster. An object that was made
// here is replaced when its cluster gets another name. ends says what a replacement would do.
func (h Ownership) CheckImported(what string, had, wanted types.String, ends string, diags *diag.Diagnostics) {
	if !h.Imported || wanted.IsUnknown() || wanted.Equal(had) {
		return
	}
	diags.AddAttributeError(path.Root("cluster"), "Imported "+what+" of another cluster",
		fmt.Sprintf("This state has imported the %[1]s of cluster %[2]s, and cluster is %[3]q in the configuration. To replace the %[1]s would %[4]s.\n\n"+
			"Remove it from this state with `terraform state rm`, and import the %[1]s of cluster %[3]s instead. If the %[1]s of cluster %[2]s is the right one, set cluster = %[2]q.",
			what, had.ValueString(), wanted.ValueString(), ends))
}

// Lost reports whether the private state was lost, see ReadOwnership.
func (h Ownership) Lost() bool { return h.Account == "" && h.ID != "" }

// Recovered returns a lost ownership as the refresh of something that has its claim finds it.
func (d *Session) Recovered(ctx context.Context, client *infraaws.Client, h Ownership, found infraaws.Claim) (Ownership, error) {
	if !h.Lost() {
		return h, nil
	}
	account, _, err := d.Identity(ctx, client)
	if found.ID == h.ID {
		h.Claim = found
	}
	h.Account, h.Region = account, client.Region
	return h, err
}
