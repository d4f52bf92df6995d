package provider

import (
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
)

// TestArchitecture: the instance type decides on the image, and roles are told. Between two architectures a
// machine is replaced.
func TestArchitecture(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, machine := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(networkConfig())
	arm := with(workerConfig(network), values{"instance_type": "t4g.small"})
	if host := plain(machine.plan(arm).planned).(values)["host"].(values); host["architecture"] != "arm64" {
		t.Errorf("planned %v", host)
	}
	machine.must(arm)
	if machine.get("image_id") != account.ARMImageID {
		t.Errorf("image %v", machine.get("image_id"))
	}
	machine.settled(arm)
	change := machine.plan(with(arm, values{"instance_type": "t3.small"}))
	if len(change.replace) != 1 || !strings.Contains(change.replace[0], "instance_type") {
		t.Errorf("replaces for %v, %s", change.replace, change.failure())
	}
	if larger := machine.plan(with(arm, values{"instance_type": "m6g.large"})); len(larger.replace) > 0 || larger.failure() != "" {
		t.Errorf("replaces for %v, %s", larger.replace, larger.failure())
	}
	other := c.instance("k8s_machine")
	mention(t, other.attempt(with(arm, values{"name": "worker-1", "private_ip": "10.240.0.21", "pod_cidr": "10.200.1.0/24", "ami": account.ImageID})),
		"AMI "+account.ImageID+" is for amd64", "t4g.small have arm64 processors")
	if !other.state.IsNull() {
		t.Error("a machine with the wrong image is in the state")
	}
	filtered := with(arm, values{"name": "worker-1", "private_ip": "10.240.0.21", "pod_cidr": "10.200.1.0/24", "image_filter": values{"name": "debian-13-*", "owners": []any{"136693071363"}}})
	other.must(filtered)
	if other.get("image_id") != account.ARMImageID {
		t.Errorf("image %v", other.get("image_id"))
	}
}

// TestMixedArchitectures: each machine of a role downloads the programs for its own processors.
func TestMixedArchitectures(t *testing.T) {
	t.Parallel()
	p := New("test")
	c := newCore(t, p, values{"ssh": values{"private_key": sshKey(t)}, "artifact_checksums": downloads + strings.ReplaceAll(strings.ReplaceAll(downloads, "amd64", "arm64"), "0000000", "1111111")})
	r := newRoles(t)
	keys := c.instance("k8s_pki")
	keys.must(values{"cluster": "demo", "key_store": "state"})
	arm := values{"name": "worker-1", "address": "203.0.113.10", "private_ip": "10.240.0.21", "host_key": publicKey(t), "pod_cidr": "10.200.1.0/24", "architecture": "arm64"}
	pool := with(r.pool, values{"pki": keys.get("ref"), "hosts": append(r.pool["hosts"].([]any), arm)})
	planned := c.instance("k8s_worker_pool").plan(pool)
	if failure := planned.failure(); failure != "" {
		t.Fatal(failure)
	}
	files := plain(planned.planned).(values)["files"].(values)
	const kubelet = ":/usr/local/bin/kubelet"
	one, two := files["worker-0"+kubelet], files["worker-1"+kubelet]
	if one == nil || two == nil || one == two {
		t.Errorf("kubelets %v and %v", one, two)
	}
	const unit = ":/etc/systemd/system/kubelet.service"
	if files["worker-0"+unit] == nil {
		t.Errorf("files %v", files)
	}
	// Without their checksums it is said which are missing.
	missing := newCore(t, New("test"), values{"ssh": values{"private_key": sshKey(t)}, "artifact_checksums": downloads, "artifact_mirror": "http://mirror.example"})
	mention(t, missing.instance("k8s_worker_pool").plan(pool).failure(), "arm64/kubelet")
}
