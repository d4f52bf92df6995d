package roles_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestFilesOfNewMachine plans a worker that does not exist yet: only files that depend on unknown
// values are unknown.
func TestFilesOfNewMachine(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	pool := c.Applied("k8s_worker_pool", c.Pool)
	coming := providertest.Values{
		"name": "worker-1", "address": providertest.Unknown, "private_ip": "10.240.0.21", "public_ip": providertest.Unknown, "host_key": providertest.Unknown,
		"instance_id": providertest.Unknown, "pod_cidr": "10.200.1.0/24",
	}
	plan := func(more providertest.Values) any {
		t.Helper()
		more["hosts"] = append(slices.Clone(c.Pool["hosts"].([]any)), providertest.With(coming, providertest.Values{"availability_zone": more["zone"]}))
		delete(more, "zone")
		ch := pool.Plan(providertest.With(c.Pool, more))
		planned, _ := providertest.Plain(ch.Planned).(providertest.Values)
		if ch.Failure() != "" {
			t.Fatal(ch.Failure())
		}
		if planned["files"] == providertest.Unknown {
			return providertest.Unknown
		}
		return providertest.FilesOf(planned)
	}
	unknown := func(files any) (out []string) {
		all, _ := files.(providertest.Values)
		for _, path := range slices.Sorted(maps.Keys(all)) {
			if all[path] == providertest.Unknown {
				out = append(out, path)
			}
		}
		return out
	}
	const unit = "/etc/systemd/system/kubelet.service"
	files, _ := plan(providertest.Values{"zone": "us-east-1a"}).(providertest.Values)
	if len(files) < len(pool.Files()) || len(unknown(files)) > 0 || !strings.Contains(files[unit].(string), "[worker-1]   --node-ip=10.240.0.21") {
		t.Errorf("%d files, unknown are %q: %v", len(files), unknown(files), files[unit])
	}
	if got := unknown(plan(providertest.Values{"zone": providertest.Unknown})); !slices.Equal(got, []string{unit}) {
		t.Errorf("without the zone %q are unknown", got)
	}
	if got := plan(providertest.Values{"zone": "us-east-1a", "sandbox_image": providertest.Unknown}); got != providertest.Unknown {
		t.Errorf("with an unknown setting the files are %v", got)
	}
}
