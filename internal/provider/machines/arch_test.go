package machines_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestArchitecture: the instance type decides which image is used, and roles learn the
// architecture. A change to another architecture replaces the machine.
func TestArchitecture(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, machine := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	arm := providertest.With(providertest.WorkerConfig(network), providertest.Values{"instance_type": "t4g.small"})
	if host := providertest.Plain(machine.Plan(arm).Planned).(providertest.Values)["host"].(providertest.Values); host["architecture"] != "arm64" {
		t.Errorf("planned %v", host)
	}
	machine.Must(arm)
	if machine.Get("image_id") != account.ARMImageID {
		t.Errorf("image %v", machine.Get("image_id"))
	}
	machine.Converged(arm)
	change := machine.Plan(providertest.With(arm, providertest.Values{"instance_type": "t3.small"}))
	if len(change.Replace) != 1 || !strings.Contains(change.Replace[0], "instance_type") {
		t.Errorf("replaces for %v, %s", change.Replace, change.Failure())
	}
	if larger := machine.Plan(providertest.With(arm, providertest.Values{"instance_type": "m6g.large"})); len(larger.Replace) > 0 || larger.Failure() != "" {
		t.Errorf("replaces for %v, %s", larger.Replace, larger.Failure())
	}
	other := c.Instance("k8s_machine")
	providertest.Mention(t, other.Attempt(providertest.With(arm, providertest.Values{"name": "worker-1", "private_ip": "10.240.0.21", "pod_cidr": "10.200.1.0/24", "ami": account.ImageID})),
		"AMI "+account.ImageID+" is for amd64", "t4g.small have arm64 processors")
	if !other.State.IsNull() {
		t.Error("a machine with the wrong image is in the state")
	}
	filtered := providertest.With(arm, providertest.Values{"name": "worker-1", "private_ip": "10.240.0.21", "pod_cidr": "10.200.1.0/24", "image_filter": providertest.Values{"name": "debian-13-*", "owners": []any{"136693071363"}}})
	other.Must(filtered)
	if other.Get("image_id") != account.ARMImageID {
		t.Errorf("image %v", other.Get("image_id"))
	}
}

// TestMixedArchitectures: each machine of a role downloads the programs for its own processors.
func TestMixedArchitectures(t *testing.T) {
	t.Parallel()
	p := provider.New("test")
	c := providertest.NewCore(t, p, providertest.Values{"ssh": providertest.Values{"private_key": providertest.SSHKey(t)}, "artifact_checksums": providertest.Downloads + strings.ReplaceAll(strings.ReplaceAll(providertest.Downloads, "amd64", "arm64"), "0000000", "1111111")})
	r := providertest.NewRoles(t)
	keys := c.Instance("k8s_pki")
	keys.Must(providertest.Values{"cluster": "demo", "key_store": "state"})
	arm := providertest.Values{"name": "worker-1", "address": "203.0.113.10", "private_ip": "10.240.0.21", "host_key": providertest.PublicKey(t), "pod_cidr": "10.200.1.0/24", "architecture": "arm64"}
	pool := providertest.WithKeys(providertest.With(r.Pool, providertest.Values{"hosts": append(r.Pool["hosts"].([]any), arm)}), keys.Get("ref"))
	planned := c.Instance("k8s_worker_pool").Plan(pool)
	if failure := planned.Failure(); failure != "" {
		t.Fatal(failure)
	}
	files := providertest.FilesOf(providertest.Plain(planned.Planned).(providertest.Values))
	if got, _ := files["/usr/local/bin/kubelet"].(string); !regexp.MustCompile(`^\[worker-0\] kubelet \S+, sha256:0+\n\[worker-1\] kubelet \S+, sha256:1+0*\n$`).MatchString(got) {
		t.Errorf("kubelets %s", got)
	}
	if files["/etc/systemd/system/kubelet.service"] == nil {
		t.Errorf("files %v", files)
	}
	// Without their checksums the error says which are missing.
	missing := providertest.NewCore(t, provider.New("test"), providertest.Values{"ssh": providertest.Values{"private_key": providertest.SSHKey(t)}, "artifact_checksums": providertest.Downloads, "artifact_mirror": "http://mirror.example"})
	providertest.Mention(t, missing.Instance("k8s_worker_pool").Plan(pool).Failure(), "arm64/kubelet")
}
