package harness

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

// Restrict lets a workspace run as a user that has exactly the policy everyday.json of examples/iam.
func (s *Suite) Restrict(t *testing.T, ws *workspace.Workspace) {
	t.Helper()
	ws.Env = append(ws.Env, workspace.Exports(s.iam(t, "user", "terraform", "--policy", s.Policy("everyday")))...)
}

// PermitDestroy gives the user of Restrict the policy destroy.json, too.
func (s *Suite) PermitDestroy(t *testing.T) {
	t.Helper()
	s.iam(t, "user", "terraform", "--policy", s.Policy("everyday"), "--policy", s.Policy("destroy"))
}

// Bind lets a workspace run as a user who is bound to one cluster: with member.json and boundary.json of examples/iam,
// and the tag k8s-cluster.
func (s *Suite) Bind(t *testing.T, ws *workspace.Workspace, cluster string) {
	t.Helper()
	ws.Env = append(ws.Env, workspace.Exports(s.iam(t, append([]string{"user", "member", "--path", "/k8s/", "--policy", s.Policy("member")}, s.bound(t, cluster)...)...))...)
}

// MachineRole gives the machines of a cluster an instance profile, and the role of the same name with one policy, as the guide on
// IAM asks for: with the cluster's path, tag and boundary.
func (s *Suite) MachineRole(t *testing.T, name, cluster, policy string) {
	t.Helper()
	path := "/k8s/" + cluster + "/"
	s.iam(t, append([]string{"role", name, "--path", path, "--policy", policy}, s.bound(t, cluster)...)...)
	s.iam(t, "instance-profile", name, "--path", path, "--role", name)
}

// bound returns the arguments that bind a user or a role to one cluster.
func (s *Suite) bound(t *testing.T, cluster string) []string {
	t.Helper()
	boundary := strings.TrimSpace(s.iam(t, "policy", "k8s-boundary", "--document", s.Policy("boundary")))
	return []string{"--tag", "k8s-cluster=" + cluster, "--boundary", boundary}
}

// Policy returns the path of a policy of examples/iam, such as "member".
func (s *Suite) Policy(name string) string {
	return filepath.Join(s.Root, "examples", "iam", name+".json")
}

// ClusterPolicy is Policy for a policy that names a cluster, with the given one.
func (s *Suite) ClusterPolicy(t *testing.T, name, cluster string) string {
	t.Helper()
	text := Must[[]byte](t)(os.ReadFile(s.Policy(name)))
	file := filepath.Join(t.TempDir(), name+".json")
	if err := os.WriteFile(file, bytes.ReplaceAll(text, []byte("CLUSTER"), []byte(cluster)), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// iam runs k8s-lab iam, and returns what it prints.
func (s *Suite) iam(t *testing.T, args ...string) string {
	t.Helper()
	return s.MustLab(t, append([]string{"iam"}, args...)...)
}

// SnapshotProfile is the instance profile of machines that keep snapshots of etcd in SnapshotBucket.
const (
	SnapshotProfile = "k8s-controller"
	SnapshotBucket  = "example-snapshots"
)

// ProfileOverride gives the controllers of examples/ha-cluster the SnapshotProfile.
const ProfileOverride = "resource \"k8s_machine\" \"controller\" {\n  instance_profile = \"" + SnapshotProfile + "\"\n}\n"

// KeepSnapshots makes SnapshotBucket and SnapshotProfile, with exactly the policy etcd-snapshots.json of examples/iam.
func (s *Suite) KeepSnapshots(t *testing.T) {
	t.Helper()
	s.MustLab(t, "bucket", SnapshotBucket)
	s.MachineRole(t, SnapshotProfile, "demo", s.Policy("etcd-snapshots"))
}
