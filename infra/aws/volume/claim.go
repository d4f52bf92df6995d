package volume

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// judge decides about a volume. known says that the caller knows its id.
func (s Spec) judge(v Volume, known bool) (take bool, err error) {
	return s.Claim.Judge("volume "+v.Name+" ("+v.ID+")", aws.OwnerOf(v.Tags), known)
}

// claim returns the volume of an id, or the one that an interrupted create has left. It is
// claimed before anything is changed. Of several none is taken: only a person can tell which has the
// data.
func claim(ctx context.Context, c *aws.Client, id, zone string, spec Spec) (Volume, error) {
	found, err := list(ctx, c, id, spec)
	if err != nil {
		return Volume{}, err
	}
	if len(found) == 0 {
		return Volume{}, fmt.Errorf("volume %s%s %w", id, spec.Name, aws.ErrNotFound)
	}
	var ids []string
	for _, v := range found {
		if _, err := spec.judge(v, id != ""); err != nil {
			return Volume{}, err
		}
		ids = append(ids, v.ID)
	}
	if len(ids) > 1 {
		return Volume{}, fmt.Errorf("it exists %d times (%s): delete all but one, or import the one with the data", len(ids), strings.Join(ids, ", "))
	}
	v := found[0]
	take, err := spec.judge(v, id != "")
	if err == nil {
		err = v.fits(zone, spec)
	}
	if err != nil || !take {
		return v, err
	}
	if err := c.TakeOver(ctx, spec.Claim, ids); err != nil {
		return Volume{}, err
	}
	spec.Claim.Adopt = false // it has been written by now
	err = aws.ReadBack(ctx, func(ctx context.Context) error {
		if v, err = Find(ctx, c, v.ID); err == nil {
			_, err = spec.judge(v, true)
		}
		return err
	})
	return v, err
}

// confirm looks at the volume of a create again, by its tags. A create has lost if it finds the
// volume of another create beside its own, or if another create has taken its volume over. It then
// deletes the volume that it has made, if it still owns it. A volume that it has found stays: there
// may be data on it.
func confirm(ctx context.Context, c *aws.Client, v Volume, spec Spec, made bool) error {
	if spec.Claim.ID == "" {
		return nil
	}
	found, err := list(ctx, c, "", spec)
	if err != nil {
		return err
	}
	spec.Claim.Adopt = false
	var lost error
	for _, f := range found {
		if _, err := spec.judge(f, true); err != nil {
			lost = err
		}
	}
	if lost == nil || !made {
		return lost
	}
	if err := Delete(ctx, c, v.ID, spec); err != nil && !aws.IsClaimed(err) {
		return errors.Join(lost, err)
	}
	return lost
}
