package release

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

// lockFile is the file that a process locks while it adds to the cache.
func lockFile(cacheDir string) string { return filepath.Join(cacheDir, "lock") }

// lock takes the cache's lock. While it waits, it says so on p.
func lock(ctx context.Context, cacheDir string, p *progress.Reporter) (unlock func(), err error) {
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return nil, err
	}
	stop := func() {}
	unlock, err = cache.Lock(ctx, lockFile(cacheDir), func(pid string) {
		title := "waiting for process " + pid + ", which is filling " + cacheDir
		p.Line(title)
		stop = p.Quiet(title)
	})
	stop()
	if err != nil {
		return nil, fmt.Errorf("locking %s: %w", lockFile(cacheDir), err)
	}
	return unlock, nil
}
