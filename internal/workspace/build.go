package workspace

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// Build builds programs of the repository at root into a directory, as
// "make build" does and releases are built. What is up to date there is not
// linked again, which is most of the work.
func Build(ctx context.Context, root, dir string, packages ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-ldflags=-s -w", "-o", dir + "/"}, packages...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}
