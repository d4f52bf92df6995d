package tf

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
)

// Deadlines are the defaults of one resource; zero means that the operation
// has no deadline of its own to set.
type Deadlines struct{ Create, Read, Update, Delete time.Duration }

// Block returns the timeouts block with the defaults in its descriptions.
func (d Deadlines) Block(ctx context.Context) schema.Block {
	describe := func(operation string, limit time.Duration) string {
		return fmt.Sprintf("Time limit for %s, as a duration such as `30m`. Default: `%s`.", operation, Short(limit))
	}
	return timeouts.Block(ctx, timeouts.Opts{
		Create: d.Create > 0, CreateDescription: describe("creation", d.Create),
		Read: d.Read > 0, ReadDescription: describe("a refresh", d.Read),
		Update: d.Update > 0, UpdateDescription: describe("an update", d.Update),
		Delete: d.Delete > 0, DeleteDescription: describe("deletion", d.Delete),
	})
}

// Within bounds ctx by the user's deadline or the default. get is a method
// value such as model.Timeouts.Create.
func Within(ctx context.Context, get func(context.Context, time.Duration) (time.Duration, diag.Diagnostics), fallback time.Duration, diags *diag.Diagnostics) (context.Context, context.CancelFunc) {
	limit, d := get(ctx, fallback)
	diags.Append(d...)
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("the deadline of %s set by the timeouts block: %w", Short(limit), context.DeadlineExceeded))
}

// Short writes 10m instead of 10m0s.
func Short(d time.Duration) string {
	switch {
	case d >= time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= time.Minute && d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	default:
		return d.String()
	}
}
