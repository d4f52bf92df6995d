package deed

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// The deeds of a machine of which an image is made.
const (
	pullImages    deed = "pull-images"
	checkPrograms deed = "check-programs"
	seal          deed = "seal"
)

// ImageScripts returns a digest of the scripts with which images are made.
func ImageScripts() string {
	sum := sha256.New()
	for _, d := range []deed{pullImages, checkPrograms, seal} {
		fmt.Fprintln(sum, d.script())
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// PullImages pulls container images, such as "registry.k8s.io/pause:3.10", into the directory of a containerd that does not
// run yet. hosts are the files in which containerd reads where images are, by their paths below the directory of such files. They
// may have passwords, and none of them stays on the machine.
func PullImages(ctx context.Context, r Runner, containerd, ctr string, hosts map[string][]byte, images []string) error {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for name, content := range hosts {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(content))}); err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	_, err := pullImages.run(ctx, r, pullImages.script(append([]string{containerd, ctr}, images...)...), &archive)
	return err
}

// CheckPrograms runs commands, such as "/usr/local/bin/etcd --version", each of which has to succeed within half a minute. On a
// machine with dpkg every package must be fully installed.
func CheckPrograms(ctx context.Context, r Runner, commands []string) error {
	return checkPrograms.do(ctx, r, commands...)
}

// Seal takes from a machine what no two machines may share: host keys, machine id, authorised keys, the state of cloud-init, logs and
// shell histories. It refuses a machine on which the file builder is missing. Afterwards nobody can log in: the machine is to be
// stopped.
func Seal(ctx context.Context, r Runner, builder string) error { return seal.do(ctx, r, builder) }
