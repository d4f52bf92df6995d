package tf

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
)

// PrivateState is the reading side of Terraform's private state. The field Private of requests and
// responses implements it.
type PrivateState interface {
	GetKey(ctx context.Context, key string) ([]byte, diag.Diagnostics)
}

// PrivateStateWriter is the writing side of Terraform's private state.
type PrivateStateWriter interface {
	SetKey(ctx context.Context, key string, value []byte) diag.Diagnostics
}

// ReadPrivate reads the entry that WritePrivate has written. It returns the zero value if there is
// none, as after an import.
func ReadPrivate[T any](ctx context.Context, p PrivateState, key string, diags *diag.Diagnostics) T {
	var out T
	raw, d := p.GetKey(ctx, key)
	diags.Append(d...)
	if len(raw) == 0 {
		return out
	}
	if err := json.Unmarshal(raw, &out); err != nil {
		diags.AddError("Cannot read the private state", fmt.Sprintf("This version of the provider does not understand the entry %q: %s", key, err))
	}
	return out
}

// WritePrivate writes an entry. The value must not contain secrets.
func WritePrivate(ctx context.Context, p PrivateStateWriter, key string, value any, diags *diag.Diagnostics) {
	raw, err := json.Marshal(value)
	if err != nil {
		diags.AddError("Cannot write the private state", err.Error())
		return
	}
	diags.Append(p.SetKey(ctx, key, raw)...)
}
