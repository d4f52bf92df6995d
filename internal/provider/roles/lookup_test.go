package roles

import (
	"errors"
	"strings"
	"testing"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/controlplane"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/etcdbackup"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/etcdcluster"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/workerpool"
)

// TestWithRole: the claims on machines say which of them have a role, and two claims mean two
// resources.
func TestWithRole(t *testing.T) {
	machines := []awsmachine.Machine{{Name: "controller-0"}, {Name: "worker-0"}, {Name: "worker-1"}, {Name: "worker-2"}}
	for _, test := range []struct {
		claims map[string]string
		want   string
		err    string
	}{
		{map[string]string{"worker-0": "a", "worker-1": "a"}, "worker-0 worker-1", ""},
		{map[string]string{"worker-2": "a", "controller-0": "a", "elsewhere": "b"}, "controller-0 worker-2", ""},
		{map[string]string{"worker-0": "a", "worker-2": "b"}, "", "more than one, on worker-0 and on worker-2"},
		{nil, "", "does not exist"},
	} {
		found, err := withRole(machines, test.claims)
		var names []string
		for _, m := range found {
			names = append(names, m.Name)
		}
		if got := strings.Join(names, " "); got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
			t.Errorf("%v: %s, %v", test.claims, got, err)
		}
	}
	if _, err := withRole(machines, nil); !errors.Is(err, infraaws.ErrNotFound) {
		t.Error(err)
	}
}

// TestNamesOfRoles: a role without machines has the name with which its claims are asked for.
func TestNamesOfRoles(t *testing.T) {
	for want, role := range map[string]rollout.Role{"etcd": etcdcluster.Cluster{}, "etcd backup": etcdbackup.Backup{}, "control plane": controlplane.ControlPlane{}, "worker": workerpool.Pool{}} {
		if got := role.Definition().Name; got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
}
