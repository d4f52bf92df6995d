package lab

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
)

// Exec returns a command that runs as root on a running instance, without SSH. The instance is
// given by its id, its Name tag, or the end of that tag ("worker-0" for "demo-worker-0") if no
// other running instance's has the same end.
func (l *Lab) Exec(ctx context.Context, instance string, args ...string) (*exec.Cmd, error) {
	o, err := l.Overview(ctx)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, i := range o.Instances {
		if i.State != "running" {
			continue
		}
		if i.ID == instance || i.Name == instance {
			found = []string{i.ID}
			break
		}
		if strings.HasSuffix(i.Name, "-"+instance) {
			found = append(found, i.ID)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("no running instance is called %s; k8s-lab status lists them", instance)
	case 1:
		return machine.Enter(ctx, l.dir, found[0], args...)
	default:
		return nil, fmt.Errorf("%d running instances are called %s: use an id (%s)", len(found), instance, strings.Join(found, ", "))
	}
}
