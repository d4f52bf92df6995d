package component

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"github.com/coreos/go-systemd/v22/unit"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// WorkerSpec describes a pool of workers.
type WorkerSpec struct {
	Cluster              Cluster
	Version              string
	ControlPlaneEndpoint string // "https://10.240.0.40:6443"
	Artifacts            []artifact.Artifact
	// The versions are for the record; what is installed is among the Artifacts.
	ContainerdVersion, RuncVersion, CNIVersion string

	Labels           map[string]string // see SplitLabels for those a kubelet may not set on its own node
	Taints           []Taint
	ProviderIDs      map[string]string // node name -> spec.providerID; optional
	KubeletConfig    map[string]any    // merged over the typed KubeletConfiguration; unknown fields are errors
	KubeProxyConfig  map[string]any    // likewise KubeProxyConfiguration
	ContainerdConfig map[string]any    // merged over containerd's config.toml
	// RegistryMirrors maps a registry ("registry.k8s.io", or "*" for every
	// other one) to the URL that serves its images. A URL with a path is used
	// as it is; without one, containerd appends /v2.
	RegistryMirrors map[string]string
	CNI             string // CNIBridge (default) or CNINone
	SandboxImage    string // empty means DefaultSandboxImage
	KubeletArgs     Args
	KubeProxyArgs   Args
	EarlyRenewal    time.Duration // of certificates; zero means pki.DefaultEarlyRenewal
}

// Taint is a taint every node of the pool registers with.
type Taint struct{ Key, Value, Effect string }

// Values of WorkerSpec.CNI.
const (
	CNIBridge = "bridge"
	// CNINone installs no network configuration: a CNI add-on brings its own.
	CNINone = "none"
)

// worker is one machine's share of a pool while it is being written down.
type worker struct {
	spec WorkerSpec
	node Node
	m    Machine
}

// Worker returns what one worker must look like: containerd, runc, CNI
// plugins, kubelet and kube-proxy.
func Worker(spec WorkerSpec, n Node) (Machine, error) {
	w := &worker{spec: spec, node: n}
	if err := w.build(); err != nil {
		return Machine{}, fmt.Errorf("worker %s: %w", n.Name, err)
	}
	return w.m, nil
}

func (w *worker) build() error {
	if w.spec.CNI == "" {
		w.spec.CNI = CNIBridge
	}
	if w.spec.SandboxImage == "" {
		w.spec.SandboxImage = DefaultSandboxImage
	}
	v, err := version.ParseSupported(w.spec.Version)
	if err != nil {
		return err
	}
	if err := errors.Join(w.validate(),
		CheckFlags(artifact.Kubelet, v, w.spec.KubeletArgs), CheckFields(artifact.Kubelet, v, w.spec.KubeletConfig),
		CheckFlags(artifact.KubeProxy, v, w.spec.KubeProxyArgs), CheckFields(artifact.KubeProxy, v, w.spec.KubeProxyConfig)); err != nil {
		return err
	}
	w.m.State = desired.State{
		Modules: []string{"br_netfilter", "nf_conntrack", "overlay"},
		Sysctls: map[string]string{
			"net.ipv4.ip_forward": "1",
			// A pod that answers a service's client on the same bridge must
			// pass the host's connection tracking on its way back.
			"net.bridge.bridge-nf-call-iptables": "1",
		},
		Directories: []desired.Directory{
			{Path: kubernetes, Mode: 0o755},
			{Path: pkiDir, Mode: 0o755},
			{Path: cniConfDir, Mode: 0o755},
		},
	}
	w.addFiles(caFile(NodeCAPath, w.spec.Cluster.PKI.KubernetesCA))
	for _, add := range []func() error{w.addCNI, w.addContainerd, w.addKubelet, w.addKubeProxy} {
		if err := add(); err != nil {
			return err
		}
	}
	w.m.Certificates = withRenewal(w.spec.EarlyRenewal, w.m.Certificates...)
	return nil
}

func (w *worker) validate() error {
	errs := []error{w.spec.Cluster.Validate(), w.node.validate(), requireCAs(w.spec.Cluster.PKI, pki.KubernetesCA)}
	if u, err := url.Parse(w.spec.ControlPlaneEndpoint); err != nil || u.Scheme != "https" || u.Host == "" {
		errs = append(errs, fmt.Errorf("control plane endpoint %q is not an https URL", w.spec.ControlPlaneEndpoint))
	}
	if !w.spec.Cluster.DNSIP.IsValid() {
		errs = append(errs, errors.New("the cluster has no DNS address"))
	}
	switch w.spec.CNI {
	case CNIBridge:
		errs = append(errs, w.validatePodCIDR())
	case CNINone:
	default:
		errs = append(errs, fmt.Errorf("unknown CNI %q: want %q or %q", w.spec.CNI, CNIBridge, CNINone))
	}
	return errors.Join(append(errs, CheckTaints(w.spec.Taints))...)
}

func (w *worker) validatePodCIDR() error {
	pods, all := w.node.PodCIDR, w.spec.Cluster.PodCIDR
	switch {
	case !pods.IsValid():
		return errors.New("the machine has no pod CIDR, which the bridge network needs")
	case pods != pods.Masked():
		return fmt.Errorf("pod CIDR %s has host bits set: did you mean %s?", pods, pods.Masked())
	case !all.Contains(pods.Addr()) || pods.Bits() < all.Bits():
		return fmt.Errorf("pod CIDR %s is not within the cluster's %s", pods, all)
	}
	return nil
}

// addPackages adds packages whose programs are called and which Debian's EC2 image
// lacks or may lose: mount and modprobe, for one, are wherever a kubelet gets to
// run. Other programs that installation guides name are not called: conntrack
// (kube-proxy speaks netlink since Kubernetes 1.32, kubernetes#126847), socat
// (containerd forwards ports itself), ethtool (kubeadm asks for it), libseccomp
// (within runc, which is linked statically).
func (w *worker) addPackages(names ...string) {
	w.m.State.Packages = slices.Compact(slices.Sorted(slices.Values(append(w.m.State.Packages, names...))))
}

func (w *worker) addFiles(files ...desired.File) {
	w.m.State.Files = append(w.m.State.Files, files...)
}

// addProgram adds a Kubernetes program, its unit and the command line made of its arguments.
func (w *worker) addProgram(name, description, kind string, after []string, args, extra Args, options []*unit.UnitOption, restartOn ...string) error {
	args, err := args.with(extra)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	bin, err := binary(w.spec.Artifacts, name, desired.Install{Path: binPath(name)})
	if err != nil {
		return err
	}
	unitName := name + ".service"
	w.m.State.Binaries = append(w.m.State.Binaries, bin)
	w.addFiles(service{
		description:   description,
		documentation: "https://kubernetes.io/docs/reference/command-line-tools-reference/" + name + "/",
		after:         after,
		kind:          kind,
		exec:          args.commandLine(binPath(name)),
		options:       options,
	}.file(unitName))
	w.m.State.Units = append(w.m.State.Units, running(unitName, append([]string{binPath(name)}, restartOn...)...))
	return nil
}

func (w *worker) kubeconfig(path, user, name string) (desired.File, error) {
	return kubeconfig(path, w.spec.Cluster.Name, w.spec.ControlPlaneEndpoint, NodeCAPath, user, certPath(name), keyPath(name))
}

// kubeletRequest is a node's one certificate: for its requests to the API server and for its own API.
func kubeletRequest(n Node) pki.Request {
	r := pki.Request{
		CommonName: "system:node:" + n.Name, Organizations: []string{"system:nodes"},
		DNSNames: []string{n.Name}, IPs: []netip.Addr{n.PrivateIP, loopback},
		Server: true, Client: true,
	}
	if n.PublicIP.IsValid() {
		r.IPs = append(r.IPs, n.PublicIP)
	}
	return r
}
