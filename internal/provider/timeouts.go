package provider

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-timeouts/resource/timeouts"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
)

// Default deadlines. Each is several times what the operation takes on real
// EC2, so that reaching it means that something is wrong rather than slow.
const (
	// A VPC with its parts takes seconds; the rest is room for throttling.
	networkTimeout = 5 * time.Minute
	// EC2 refuses to delete a subnet while interfaces of terminated machines
	// vanish, which can take minutes.
	networkDeleteTimeout = 15 * time.Minute
	// A machine boots within a minute or two; old instance types and
	// capacity searches take longer.
	machineTimeout = 10 * time.Minute
	// Draining, a stop, a start, and waiting until the machine does again what
	// it did; waiting for its turn does not count.
	machineChangeTimeout = 20 * time.Minute
	// Five parameters and as many certificates.
	pkiTimeout = 3 * time.Minute
	// Downloads on slow links dominate the first installation of a role.
	roleTimeout = 20 * time.Minute
	// A roll drains node by node; see max_unavailable and drain_timeout.
	rollTimeout = 60 * time.Minute
	// A refresh must stay bounded although machines do not answer.
	readTimeout = 2 * time.Minute
)

// deadlines are the defaults of one resource; zero means that the operation
// has no deadline of its own to set.
type deadlines struct{ create, read, update, delete time.Duration }

// block returns the timeouts block with the defaults in its descriptions.
func (d deadlines) block(ctx context.Context) schema.Block {
	describe := func(operation string, limit time.Duration) string {
		return fmt.Sprintf("How long %s may take in all, as a duration such as `30m`. Default: `%s`.", operation, short(limit))
	}
	return timeouts.Block(ctx, timeouts.Opts{
		Create: d.create > 0, CreateDescription: describe("creating", d.create),
		Read: d.read > 0, ReadDescription: describe("refreshing", d.read),
		Update: d.update > 0, UpdateDescription: describe("an update", d.update),
		Delete: d.delete > 0, DeleteDescription: describe("deleting", d.delete),
	})
}

// within bounds ctx by the user's deadline or the default. get is a method
// value such as model.Timeouts.Create.
func within(ctx context.Context, get func(context.Context, time.Duration) (time.Duration, diag.Diagnostics), fallback time.Duration, diags *diag.Diagnostics) (context.Context, context.CancelFunc) {
	limit, d := get(ctx, fallback)
	diags.Append(d...)
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("the deadline of %s set by the timeouts block: %w", short(limit), context.DeadlineExceeded))
}

// short writes 10m instead of 10m0s.
func short(d time.Duration) string {
	switch {
	case d >= time.Hour && d%time.Hour == 0:
		return fmt.Sprintf("%dh", d/time.Hour)
	case d >= time.Minute && d%time.Minute == 0:
		return fmt.Sprintf("%dm", d/time.Minute)
	default:
		return d.String()
	}
}
