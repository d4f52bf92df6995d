package machine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// rollTag identifies how the machine's image is chosen. It is short and has only characters that are valid
// in every tag.
func (s Spec) rollTag() string {
	sum := sha256.Sum256([]byte(imageQuestion(s.Image, s.ImageFilter, Architecture(s.InstanceType))))
	return hex.EncodeToString(sum[:8])
}

// Roll is how far machines have been replaced for a newer image.
type Roll struct {
	Image string // the newest image; empty if the machine has it
	// Next is the machine whose turn it is, and Waiting are the others that have an older image.
	Next    string
	Waiting []string
}

// rollOrder is the order in which roles are replaced: roles on which others depend come first, because
// the replacement of the others checks their health.
var rollOrder = []string{string(aws.RoleEtcd), string(aws.RoleController), string(aws.RoleLoadBalancer), string(aws.RoleWorker)}

// NextInRoll finds out whether there is a newer image for a machine, and whose turn it is. Only running
// machines of its cluster take part whose image is chosen in the same way. The next machine is the first
// one, by role and name, with an older image. All callers at the same time get the same answer.
func NextInRoll(ctx context.Context, c *aws.Client, spec Spec, id string) (Roll, error) {
	newest, err := findImage(ctx, c, spec.Image, spec.ImageFilter, spec.InstanceType)
	if err != nil {
		return Roll{}, fmt.Errorf("look for a newer image: %w", err)
	}
	all, err := machinesFor(ctx, c, spec.Cluster, "roll "+id)
	if err != nil {
		return Roll{}, fmt.Errorf("look for the machines of cluster %s: %w", spec.Cluster, err)
	}
	own, ok := all.instances[id]
	if !ok || sdk.ToString(own.ImageId) == newest.ID {
		return Roll{}, nil
	}
	question := spec.rollTag()
	type turn struct {
		role int
		name string
	}
	var turns []turn
	for other, i := range all.instances {
		tags := aws.TagMap(i.Tags)
		if (other == id || tags[aws.TagRoll] == question) && aws.StateOf(i) == types.InstanceStateNameRunning && sdk.ToString(i.ImageId) != newest.ID {
			turns = append(turns, turn{slices.Index(rollOrder, tags[aws.TagRole]), tags[aws.TagResource]})
		}
	}
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Or(cmp.Compare(a.role, b.role), strings.Compare(a.name, b.name)) })
	out := Roll{Image: newest.ID}
	for n, t := range turns {
		if n == 0 {
			out.Next = t.name
		} else {
			out.Waiting = append(out.Waiting, t.name)
		}
	}
	return out, nil
}
