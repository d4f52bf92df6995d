package harness

import (
	"context"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

// build builds programs into the repository's bin/, where they are linked once
// for all suites, and copies them, so that what is built later is not run in the
// middle of a test.
func (s *Suite) build(ctx context.Context, packages ...string) error {
	shared := filepath.Join(s.Root, "bin")
	if err := os.MkdirAll(shared, 0o755); err != nil {
		return err
	}
	lock, err := os.Open(shared)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return err
	}
	if err := workspace.Build(ctx, s.Root, shared, packages...); err != nil {
		return err
	}
	programs, err := os.ReadDir(shared)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.Bin, 0o755); err != nil {
		return err
	}
	for _, p := range programs {
		if err := copyProgram(filepath.Join(shared, p.Name()), filepath.Join(s.Bin, p.Name())); err != nil && !os.IsExist(err) {
			return err
		}
	}
	return nil
}

// copyProgram copies a program to a file that does not exist yet.
func copyProgram(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		_ = out.Close()
		return err
	}
	return out.Close()
}
