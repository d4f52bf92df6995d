package host

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

//go:embed await_boot.sh
var bootFunctions string

const (
	// bootBudget is how long a machine may take until its boot is over: user data may upgrade every package.
	bootBudget = 10 * time.Minute
	// rebootBudget is how long a machine may be away that reboots.
	rebootBudget = 90 * time.Second
)

// awaitable is a machine that may be away for a while.
type awaitable interface {
	Runner
	WaitReady(ctx context.Context, poll time.Duration) error
}

var _ awaitable = (*remote.Machine)(nil)

// AwaitBoot waits until the machine has booted: until cloud-init, if it is installed, has ended, also if user data let the
// machine reboot at its end. A unit that is never ready may hold back the last stage; then it goes on after a while. waited
// is false if there was nothing to wait for; then what was seen of the machine before still holds. progress gets what is
// waited for. The error is an [*ApplyError] with a unit of cloud-init, or one of package remote's.
func AwaitBoot(ctx context.Context, m awaitable, progress func(string)) (waited bool, err error) {
	return standardLayout().awaitBoot(ctx, m, progress)
}

func (l layout) awaitBoot(ctx context.Context, m awaitable, progress func(string)) (waited bool, err error) {
	ctx, cancel := patience.Within(ctx, bootBudget+rebootBudget)
	defer cancel()
	say := func(s string) {
		waited = true
		progress(s)
	}
	for {
		cmd := remote.Command{Name: "await-boot", Sudo: true, Script: l.preamble() + bootFunctions +
			fmt.Sprintf("limit=%d\nawait_boot\n", min(limit(ctx), int(patience.Of(ctx, bootBudget).Seconds())))}
		_, _, err := runApply(ctx, m, cmd, desired.State{}, Record{}, Options{Progress: say})
		if err == nil || !cutOff(err) || ctx.Err() != nil {
			return waited, err
		}
		say("waiting until it is back")
		if err := awaitReturn(ctx, m); err != nil {
			return waited, err
		}
	}
}

// cutOff reports whether a script did not end by itself: its machine shuts down, or is away.
func cutOff(err error) bool {
	var away *remote.UnreachableError
	var exit *remote.ExitError
	return errors.As(err, &away) || errors.As(err, &exit) && exit.Code > 128
}

func awaitReturn(ctx context.Context, m awaitable) error {
	ctx, cancel := patience.Within(ctx, rebootBudget)
	defer cancel()
	return m.WaitReady(ctx, time.Second)
}
