package workspace

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

// Build builds programs of the repository at root into a directory, with the flags of "make build"
// and of releases. It does not link programs again that are up to date, which saves most of the
// time. If GOCOVERDIR is set, the programs leave there what they execute.
func Build(ctx context.Context, root, dir string, packages ...string) error {
	args := []string{"build", "-ldflags=-s -w", "-o", dir + "/"}
	if os.Getenv("GOCOVERDIR") != "" {
		args = append(args, "-cover", "-coverpkg=./...")
	}
	cmd := exec.CommandContext(ctx, "go", append(args, packages...)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, out)
	}
	return nil
}
