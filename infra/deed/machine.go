package deed

import (
	"context"
	"strconv"
	"strings"
)

// PrepareHostKey makes a new SSH host key beside the one in use, unless the one
// in use is no longer launch, and returns the public half of the key that the
// machine is to use, in authorized_keys form. The machine does not use it yet.
func PrepareHostKey(ctx context.Context, r Runner, launch string) (string, error) {
	out, err := run(ctx, r, prepareHostKey.script(launch), nil)
	return strings.TrimSpace(out), err
}

// SwitchHostKey has the SSH server use the key that was prepared, and drops every other one.
func SwitchHostKey(ctx context.Context, r Runner) error { return switchHostKey.do(ctx, r) }

// GrowRoot lets the root partition, if there is one, and its file system fill
// their disk once it has so many bytes. Both stay in use. A root that is not on a
// disk is left alone.
func GrowRoot(ctx context.Context, r Runner, bytes int64) error {
	return growRoot.do(ctx, r, strconv.FormatInt(bytes, 10))
}
