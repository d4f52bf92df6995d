// Package apply measures ways to the same cluster, side by side, each on new machines in a new
// local EC2, several rounds in turn:
//
//   - apply: a whole terraform apply of examples/ha-cluster from nothing, and one more worker
//   - unstaged: the same without stage of k8s_machine
//   - image: the same with machines of an image that has everything; roles: the same without the boots of these machines
//   - kubeadm: kubeadm, with everything installed and pulled beforehand; nothing: the same with machines, packages and files in the time
//
// docs/design/kubeadm.md and docs/design/staging.md say what the clocks include.
//
// bench.go has the order, config.go what kubeadm and the machines read, machines/ the machines.
package apply

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

// Run is the subcommand apply, with its arguments. It needs root, and the top of the repository as its directory.
func Run(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("bench apply", flag.ContinueOnError)
	rounds := f.Int("rounds", 3, "how often each side is measured")
	sides := f.String("sides", strings.Join([]string{sideKubeadm, sideRoles, sideApply, sideImage}, ","), "what is measured, of "+strings.Join(sideNames, ", ")+"; ratios are to the first")
	mbit := f.Float64("mbit", 0, "megabits a second that each machine gets from the internet; 0 for no limit")
	milliseconds := f.Int("milliseconds", 0, "how long each answer from the internet takes to begin")
	if err := f.Parse(args); err != nil {
		return err
	}
	b := &bench{out: os.Stdout, report: progress.New(os.Stdout), line: line{*mbit, *milliseconds}}
	for name := range strings.SplitSeq(*sides, ",") {
		if !slices.Contains(sideNames, name) || slices.Contains(b.sides, name) {
			return fmt.Errorf("-sides %s: each of %s at most once, with commas between them", *sides, strings.Join(sideNames, ", "))
		}
		b.sides = append(b.sides, name)
	}
	switch {
	case *rounds < 1 || *rounds > 100:
		return fmt.Errorf("-rounds %d: between 1 and 100", *rounds)
	case os.Getuid() != 0:
		return errors.New("the local EC2 runs real machines and needs root")
	}
	var err error
	if b.root, err = os.Getwd(); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(b.root, "examples", "ha-cluster")); err != nil {
		return fmt.Errorf("run it from the top of the repository: %w", err)
	}
	b.dir = filepath.Join(b.root, ".bench-apply")
	return b.run(ctx, *rounds)
}
