package tf

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/hashicorp/terraform-plugin-framework/diag"
)

// PrivateState is the part of Terraform's private state that is read; the
// request's and the response's Private both satisfy it.
type PrivateState interface {
	GetKey(ctx context.Context, key string) ([]byte, diag.Diagnostics)
}

// PrivateStateWriter is the part of Terraform's private state that is written.
type PrivateStateWriter interface {
	SetKey(ctx context.Context, key string, value []byte) diag.Diagnostics
}

// ReadPrivate reads what WritePrivate kept under key; the zero value when
// there is nothing, as after an import.
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

// WritePrivate keeps value (hashes and the like, nothing secret) under key.
func WritePrivate(ctx context.Context, p PrivateStateWriter, key string, value any, diags *diag.Diagnostics) {
	raw, err := json.Marshal(value)
	if err != nil {
		diags.AddError("Cannot write the private state", err.Error())
		return
	}
	diags.Append(p.SetKey(ctx, key, raw)...)
}
