package tf

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
)

// Deadlines are the default time limits of a resource. The timeouts block has no attribute for an
// operation whose limit is zero.
type Deadlines struct {
	Create, Read, Update, Delete time.Duration
	// Waits says that a longer limit also lengthens the single waits of an operation.
	Waits bool
}

// Block returns the timeouts block. Its descriptions say the defaults.
func (d Deadlines) Block(ctx context.Context) schema.Block {
	describe := func(operation string, limit time.Duration) string {
		text := fmt.Sprintf("Time limit for %s, as a duration such as `30m`. Default: `%s`.", operation, ShortDuration(limit))
		if d.Waits {
			text += " With more than that, each single wait may take longer in proportion."
		}
		return text
	}
	block := timeouts.Block(ctx, timeouts.Opts{
		Create: d.Create > 0, CreateDescription: describe("creation", d.Create),
		Read: d.Read > 0, ReadDescription: describe("a refresh", d.Read),
		Update: d.Update > 0, UpdateDescription: describe("an update", d.Update),
		Delete: d.Delete > 0, DeleteDescription: describe("deletion", d.Delete),
	}).(schema.SingleNestedBlock)
	for name, a := range block.Attributes {
		limit := a.(schema.StringAttribute)
		limit.Validators = append(limit.Validators, PositiveDuration())
		block.Attributes[name] = limit
	}
	return block
}

// WithTimeout limits ctx by the time limit in the timeouts block, or by the fallback. get is a
// method value such as model.Timeouts.Create.
func WithTimeout(ctx context.Context, get func(context.Context, time.Duration) (time.Duration, diag.Diagnostics), fallback time.Duration, diags *diag.Diagnostics) (context.Context, context.CancelFunc) {
	limit, d := get(ctx, fallback)
	diags.Append(d...)
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("the deadline of %s set by the timeouts block: %w", ShortDuration(limit), context.DeadlineExceeded))
}

// ShortDuration formats a duration as 10m instead of 10m0s.
func ShortDuration(d time.Duration) string {
	switch {
	case d >= time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= time.Minute && d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	default:
		return d.String()
	}
}
