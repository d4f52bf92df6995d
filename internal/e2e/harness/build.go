package harness

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

// build builds the programs into the repository's bin/, where they are linked once for all suites,
// and gives them names of this suite, so that a later build does not replace a program during a test.
func (s *Suite) build(ctx context.Context) error {
	shared := s.shared()
	if err := os.MkdirAll(shared, 0o755); err != nil {
		return err
	}
	lock := flock.New(shared, flock.SetFlag(os.O_RDONLY))
	if _, err := lock.TryLockContext(ctx, 100*time.Millisecond); err != nil {
		return err
	}
	defer lock.Unlock() //nolint:errcheck // the lock also ends with the process
	if err := workspace.Build(ctx, s.Root, shared, ".", "./cmd/..."); err != nil {
		return err
	}
	if err := os.MkdirAll(s.Bin, 0o755); err != nil {
		return err
	}
	programs, err := os.ReadDir(shared)
	if err != nil {
		return err
	}
	for _, p := range programs {
		if err := workspace.LinkOrCopy(filepath.Join(shared, p.Name()), filepath.Join(s.Bin, p.Name())); err != nil {
			return err
		}
	}
	return nil
}
