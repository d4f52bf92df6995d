package tf

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
)

// Deadlines are the default time limits of a resource. The argument timeouts has no attribute for an
// operation whose limit is zero.
type Deadlines struct{ Create, Read, Update, Delete time.Duration }

// Attribute returns the argument timeouts. Its descriptions say the defaults.
func (d Deadlines) Attribute(ctx context.Context) schema.Attribute {
	describe := func(operation string, limit time.Duration) string {
		return fmt.Sprintf("Time limit for %s, as a duration such as `30m`. Default: `%s`, times the provider's `patience`.", operation, ShortDuration(limit))
	}
	argument := timeouts.Attributes(ctx, timeouts.Opts{
		Create: d.Create > 0, CreateDescription: describe("creation", d.Create),
		Read: d.Read > 0, ReadDescription: describe("a refresh", d.Read),
		Update: d.Update > 0, UpdateDescription: describe("an update", d.Update),
		Delete: d.Delete > 0, DeleteDescription: describe("deletion", d.Delete),
	}).(schema.SingleNestedAttribute)
	argument.MarkdownDescription = "Time limits of single operations. `patience` of the provider lengthens the defaults, and not the limits that you set here."
	for name, a := range argument.Attributes {
		limit := a.(schema.StringAttribute)
		limit.Validators = append(limit.Validators, PositiveDuration())
		argument.Attributes[name] = limit
	}
	return argument
}

// Limit is a method value such as model.Timeouts.Create: it returns the time limit in timeouts, or the fallback.
type Limit func(ctx context.Context, fallback time.Duration) (time.Duration, diag.Diagnostics)

// WithTimeout limits ctx by the time limit in timeouts, or by the fallback.
func WithTimeout(ctx context.Context, get Limit, fallback time.Duration, diags *diag.Diagnostics) (context.Context, context.CancelFunc) {
	limit, d := get(ctx, fallback)
	diags.Append(d...)
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("the time limit of %s (timeouts): %w", ShortDuration(limit), context.DeadlineExceeded))
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
