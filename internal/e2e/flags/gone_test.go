package flags

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// TestGoneFlags compares component with the programs for flags that only some releases have.
func TestGoneFlags(t *testing.T) {
	for _, v := range versions {
		list, err := catalog(t).ControlPlaneSet(v)
		controllers := set(t, list, err)
		list, err = catalog(t).WorkerSet(v, "", "", "", true)
		workers := set(t, list, err)
		t.Run(artifact.KubeControllerManager+" "+v, func(t *testing.T) {
			compareFlags(t, artifact.KubeControllerManager, v, program(t, find(t, controllers, artifact.KubeControllerManager), ""), "unknown flag",
				"concurrent-service-syncs", "concurrent-deployment-syncs")
		})
		t.Run(artifact.Kubelet+" "+v, func(t *testing.T) {
			compareFlags(t, artifact.Kubelet, v, program(t, find(t, workers, artifact.Kubelet), ""), "unknown flag",
				"application-metrics-count-limit", "boot-id-file", "container-hints", "containerd", "containerd-namespace", "enable-load-reader",
				"event-storage-age-limit", "event-storage-event-limit", "global-housekeeping-interval", "housekeeping-interval", "log-cadvisor-usage",
				"machine-id-file", "storage-driver-buffer-duration", "storage-driver-db", "storage-driver-host", "storage-driver-password",
				"storage-driver-secure", "storage-driver-table", "storage-driver-user", "node-ip")
		})
	}
	for _, v := range []string{artifact.DefaultEtcd, artifact.NextEtcd} {
		t.Run(artifact.Etcd+" "+v, func(t *testing.T) {
			list, err := catalog(t).EtcdSet(v)
			etcd := program(t, find(t, set(t, list, err), artifact.Etcd), "etcd-v"+v+"-linux-amd64/etcd")
			compareFlags(t, artifact.Etcd, v, etcd, "flag provided but not defined",
				"experimental-corrupt-check-time", "experimental-initial-corrupt-check", "corrupt-check-time", "discovery", "discovery-proxy", "discovery-token")
		})
	}
}

// compareFlags runs a program with each flag and --version, and checks that it refuses the flag
// exactly when component does.
func compareFlags(t *testing.T, name, release, program, refusal string, flags ...string) {
	t.Helper()
	v, err := version.Parse(release)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
	defer cancel()
	for _, flag := range flags {
		out, _ := exec.CommandContext(ctx, program, "--"+flag+"=1", "--version").CombinedOutput() // the value may be invalid
		gone := strings.Contains(string(out), refusal+": -")
		if err := component.CheckFlags(name, v, component.Args{flag: {"1"}}); (err != nil) != gone {
			t.Errorf("--%s: component says %v, %s %s says\n%s", flag, err, name, release, out)
		}
	}
}
