package deed

import (
	"context"
	"strconv"
	"strings"
)

// PrepareHostKey makes a new SSH host key beside those in use, but only while the machine has none but
// the keys launch. It is of ed25519, or of ECDSA where sshd offers no ed25519. PrepareHostKey returns the public key that the
// machine is to use, in authorized_keys form. The machine does not use the new key yet.
func PrepareHostKey(ctx context.Context, r Runner, launch []string) (string, error) {
	out, err := prepareHostKey.run(ctx, r, prepareHostKey.script(launch...), nil)
	return strings.TrimSpace(out), err
}

// SwitchHostKey makes the SSH server use the prepared key, of which key is what PrepareHostKey returned, and deletes all
// others. From then on the machine prints the key's fingerprint on its console at each boot.
func SwitchHostKey(ctx context.Context, r Runner, key string) error {
	return switchHostKey.do(ctx, r, key)
}

// GrowRoot grows the root partition, if there is one, and its file system to the size of their
// disk, once the disk has that many bytes. Both stay mounted. A root that is not on a disk is left
// alone.
func GrowRoot(ctx context.Context, r Runner, bytes int64) error {
	return growRoot.do(ctx, r, strconv.FormatInt(bytes, 10))
}
