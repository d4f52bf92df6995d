package harness

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/prepared"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

// everywhere names the variable of a release of Debian that all machines boot.
const everywhere = "K8S_E2E_DEBIAN"

// debianParameter returns what the argument ami has for a release of Debian.
func debianParameter(release string) string {
	return "resolve:ssm:/aws/service/debian/release/" + release + "/latest/amd64"
}

// chooseImage sets what machines boot, and returns the arguments of k8s-lab up for it. A lab without
// artifacts, or of virtual machines, has no prepared image.
func (s *Suite) chooseImage(ctx context.Context, up []string) ([]string, error) {
	if s.debian != "" {
		s.ami = debianParameter(s.debian)
	}
	if os.Getenv(everywhere) != "" || slices.Contains(up, "--bare") || slices.Contains(up, "--machines") {
		return nil, nil
	}
	img, err := prepared.Ensure(ctx, prepared.Options{CacheDir: s.Cache, Program: filepath.Join(s.Bin, "k8s-lab"), For: s.stateDir(), Progress: progress.New(os.Stderr)})
	if err != nil {
		return nil, fmt.Errorf("preparing the machines' image: %w", err)
	}
	s.prepared = img.ID
	s.ami = cmp.Or(s.ami, img.ID)
	return []string{"--image", img.ID}, nil
}

// Image returns what machines boot, as the argument ami has it. Empty means the provider's default.
func (s *Suite) Image() string { return s.ami }

// Prepared returns the prepared image as the argument ami has it, for the cluster of MainOn's suite that is
// not about its installation. It is Image if there is none.
func (s *Suite) Prepared() string { return cmp.Or(s.prepared, s.ami) }
