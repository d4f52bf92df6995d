package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/outside"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/release"
)

// Env returns the environment variables that point AWS clients and the provider to the lab, as
// pairs of name and value.
func (l *Lab) Env() ([][2]string, error) {
	s, err := l.existingSettings()
	if err != nil {
		return nil, err
	}
	out := [][2]string{
		{"AWS_ENDPOINT_URL", s.endpoint()},
		{"AWS_REGION", s.Region},
		{"AWS_DEFAULT_REGION", s.Region}, // what the AWS CLI and boto3 read
		{"AWS_ACCESS_KEY_ID", s.AccessKeyID},
		{"AWS_SECRET_ACCESS_KEY", s.SecretAccessKey},
		{"AWS_EC2_METADATA_DISABLED", "true"},
	}
	if !s.Bare {
		out = append(out, [2]string{"K8S_ARTIFACT_MIRROR", s.mirror()}, [2]string{"K8S_ARTIFACT_CHECKSUMS", filepath.Join(s.MirrorDir, "SHA256SUMS")})
	}
	return out, nil
}

func (l *Lab) existingSettings() (settings, error) {
	s, err := l.readSettings()
	if err == nil && s.APIPort == 0 {
		err = fmt.Errorf("%w: there is no lab in %s; k8s-lab up starts one", ErrNotRunning, l.dir)
	}
	return s, err
}

// Vars are Terraform variables for clusters in the lab: the operator's address, and what differs from plain AWS.
type Vars struct {
	AdminCIDRs []string  `json:"admin_cidrs"`
	Elsewhere  Elsewhere `json:"elsewhere"`
}

// Elsewhere is what clusters in the lab need, unlike on AWS: where images come from, where programs on machines reach AWS, and the
// settings of kubelet, kube-proxy and containerd if machines are containers on this host.
type Elsewhere struct {
	Registries       map[string]Registry `json:"registries"`
	KubeletConfig    map[string]any      `json:"kubelet_config,omitempty"`    // fields of KubeletConfiguration
	KubeProxyConfig  map[string]any      `json:"kube_proxy_config,omitempty"` // fields of KubeProxyConfiguration
	ContainerdConfig map[string]any      `json:"containerd_config,omitempty"` // of config.toml, version 3
	AWSEndpoint      string              `json:"aws_endpoint"`                // for programs on machines
}

// Registry is one value of the argument registries of worker pools.
type Registry struct {
	Mirrors []RegistryMirror `json:"mirrors"`
}

// RegistryMirror is one of its mirrors.
type RegistryMirror struct {
	URL string `json:"url"`
}

// Vars returns the Terraform variables of this lab. It is an error if the lab is bare.
func (l *Lab) Vars() (Vars, error) {
	s, err := l.existingSettings()
	if err != nil {
		return Vars{}, err
	}
	if s.Bare {
		return Vars{}, fmt.Errorf("the lab in %s is bare: it has no images and artifacts for clusters; k8s-lab up adds them", l.dir)
	}
	mirrored := Registry{Mirrors: []RegistryMirror{{URL: s.registry()}}}
	v := Vars{
		AdminCIDRs: []string{s.Operator.String() + "/32"},
		Elsewhere: Elsewhere{
			// An image name without a host, such as the toolbox's, means docker.io.
			Registries:  map[string]Registry{"registry.k8s.io": mirrored, "docker.io": mirrored},
			AWSEndpoint: "http://" + outside.APIName,
		},
	}
	for _, name := range s.With {
		v.Elsewhere.Registries[release.Extras[name].Registry] = mirrored
	}
	if s.Machines == machine.VirtualMachine {
		return v, nil
	}
	v.Elsewhere.KubeProxyConfig = kubeProxyConfig()
	v.Elsewhere.KubeletConfig, v.Elsewhere.ContainerdConfig, err = hostSettings()
	return v, err
}

// kubeProxyConfig keeps kube-proxy from setting the limits of connection tracking: the kernel
// allows that only in the host's network namespace, and machines have others.
func kubeProxyConfig() map[string]any {
	return map[string]any{"conntrack": map[string]any{"maxPerCore": 0, "min": 0}}
}

// hostSettings returns the settings that kubelet and containerd need in machines on this host.
func hostSettings() (kubelet, containerd map[string]any, err error) {
	kubelet = map[string]any{
		// All machines share the host's disk, so how full it is says nothing about a node.
		"evictionHard":                map[string]string{"imagefs.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%"},
		"imageGCHighThresholdPercent": 100,
	}
	var fs unix.Statfs_t
	if err := unix.Statfs("/sys/fs/cgroup", &fs); err != nil {
		return nil, nil, fmt.Errorf("looking at the host's control groups: %w", err)
	}
	if fs.Type != unix.CGROUP2_SUPER_MAGIC {
		kubelet["failCgroupV1"], kubelet["cgroupDriver"] = false, "cgroupfs"
	}
	if swaps, err := os.ReadFile("/proc/swaps"); err == nil && strings.Count(string(swaps), "\n") > 1 {
		kubelet["failSwapOn"] = false
	}
	may, err := mayLowerOOMScores()
	if err != nil {
		return nil, nil, err
	}
	if !may {
		containerd = map[string]any{"plugins": map[string]any{"io.containerd.cri.v1.runtime": map[string]any{"restrict_oom_score_adj": true}}}
	}
	return kubelet, containerd, nil
}

// mayLowerOOMScores reports whether root has CAP_SYS_RESOURCE here, which lowering an OOM score
// needs.
func mayLowerOOMScores() (bool, error) {
	raw, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false, fmt.Errorf("looking at this process's capabilities: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		if hex, ok := strings.CutPrefix(line, "CapBnd:"); ok {
			set, err := strconv.ParseUint(strings.TrimSpace(hex), 16, 64)
			if err != nil {
				return false, fmt.Errorf("looking at this process's capabilities: %w", err)
			}
			return set&(1<<unix.CAP_SYS_RESOURCE) != 0, nil
		}
	}
	return false, nil
}
