package host

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// Journal returns the last lines of a unit's journal, redacted. It is meant for
// errors, so instead of failing it says why there is nothing to show; it looks
// even when ctx has just ended.
func Journal(ctx context.Context, r Runner, unit string, lines int) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	out, err := r.Run(ctx, remote.Command{Sudo: true, Script: fmt.Sprintf(
		"LC_ALL=C journalctl --no-pager --quiet --no-hostname -o short-iso -n %d -u %s", lines, quote(unit))})
	if err != nil {
		return fmt.Sprintf("(the journal of %s cannot be read: %v)", unit, err)
	}
	return remote.Redact(strings.ToValidUTF8(strings.TrimSpace(string(out.Stdout)), "?"))
}
