package session

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// StagedChecksums are the checksums that were looked up for stagings, by path in the mirror's layout.
type StagedChecksums struct {
	sync.Mutex
	sums map[string]string // empty if it could not be found out
}

// stagedLookup limits the lookup of the checksums of one set of downloads: a staging is not worth more.
const stagedLookup = 10 * time.Second

// Add sets the missing checksums of artifacts. Those that cannot be found out stay empty.
func (s *StagedChecksums) Add(ctx context.Context, c *artifact.Catalog, as []artifact.Artifact) error {
	s.Lock()
	defer s.Unlock()
	if s.sums == nil {
		s.sums = map[string]string{}
	}
	var unknown []artifact.Artifact
	for i := range as {
		sum, asked := s.sums[as[i].Path]
		if as[i].SHA256 == "" {
			as[i].SHA256 = sum
		}
		if as[i].SHA256 == "" && !asked {
			unknown = append(unknown, as[i])
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	ctx, cancel := patience.Within(ctx, stagedLookup)
	defer cancel()
	// One by one: what is missing is no reason to leave out the others.
	errs := make([]error, len(unknown))
	var all parallel.Group
	for i := range unknown {
		all.Go(func() error {
			errs[i] = c.Resolve(ctx, unknown[i:i+1])
			return nil
		})
	}
	if err := all.Wait(); err != nil { // a panic
		return err
	}
	for _, a := range unknown {
		s.sums[a.Path] = a.SHA256
	}
	for i := range as {
		if as[i].SHA256 == "" {
			as[i].SHA256 = s.sums[as[i].Path]
		}
	}
	return errors.Join(errs...)
}
