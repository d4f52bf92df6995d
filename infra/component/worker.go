package component

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/unit"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/egress"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// WorkerSpec describes a pool of workers.
type WorkerSpec struct {
	Cluster              Cluster
	Version              string
	ControlPlaneEndpoint string // "https://10.240.0.40:6443"
	Artifacts            []artifact.Artifact

	CNI          CNISpec
	Containerd   ContainerdSpec
	Kubelet      KubeletSpec
	KubeProxy    KubeProxySpec
	AllowedCIDRs []netip.Prefix // that may reach the kubelet and kube-proxy, beside pods; nil means that everybody may
	EarlyRenewal time.Duration  // of certificates; zero means pki.DefaultEarlyRenewal
	Extra        []desired.ExtraFile
	Proxy        egress.Proxy // of containerd, for images, and of the kubelet, for its credential providers
}

// Check reports settings that the release would reject.
func (s WorkerSpec) Check() invalid.Fields {
	v, _ := version.Parse(s.Version)
	errs := slices.Concat(s.Kubelet.check(v), s.KubeProxy.check(v), s.Containerd.check())
	if _, typed, err := s.kubeletConfig(); err == nil { // else it is reported already
		errs.Add("kubelet_config", "Unusable configuration", checkPlacement(typed))
	}
	return errs
}

// worker builds the Machine of one worker.
type worker struct {
	spec WorkerSpec
	node Node
	m    Machine

	configs workerConfigs
}

// workerConfigs are the configurations of a pool's programs, without the fields that differ by node.
type workerConfigs struct {
	kubelet      map[string]any
	kubeletTyped *kubeletconfig.KubeletConfiguration
	kubeProxy    map[string]any
	containerd   desired.File
}

func (s WorkerSpec) configs() (c workerConfigs, err error) {
	if c.kubelet, c.kubeletTyped, err = s.kubeletConfig(); err != nil {
		return c, err
	}
	if c.kubeProxy, err = s.kubeProxyConfig(); err != nil {
		return c, err
	}
	c.containerd, err = s.containerdFile(c.kubeletTyped)
	return c, err
}

// Workers returns a function that returns what a worker of the pool must look like: containerd, runc, CNI
// plugins, kubelet and kube-proxy. The specification is checked and decoded once for all of them. The error
// is about the specification.
func Workers(spec WorkerSpec) func(Node) (Machine, error) {
	decoded := sync.OnceValues(func() (workerConfigs, error) {
		if err := spec.validate(); err != nil {
			return workerConfigs{}, err
		}
		return spec.configs()
	})
	return func(n Node) (Machine, error) {
		w := &worker{spec: spec, node: n}
		w.spec.Artifacts = artifact.OfArch(spec.Artifacts, n.Arch)
		configs, err := decoded()
		w.configs = configs
		if err = errors.Join(w.validate(), err); err == nil {
			err = w.build()
		}
		if err != nil {
			return Machine{}, fmt.Errorf("worker %s: %w", n.Name, err)
		}
		return w.m.with(spec.Cluster, spec.Extra), nil
	}
}

func (w *worker) build() error {
	w.m.State = desired.State{
		Modules: []string{"br_netfilter", "nf_conntrack", "overlay"},
		Sysctls: map[string]string{
			"net.ipv4.ip_forward": "1",
			// A pod that answers a service's client on the same bridge must pass the host's
			// connection tracking on its way back.
			"net.bridge.bridge-nf-call-iptables": "1",
		},
		Directories: []desired.Directory{
			{Path: kubernetes, Mode: 0o755},
			{Path: pkiDir, Mode: 0o755},
			{Path: cniConfDir, Mode: 0o755},
		},
	}
	w.addFiles(caFile(NodeCAPath, w.spec.Cluster.PKI.KubernetesCA))
	for _, add := range []func() error{w.addCNI, w.addPodRoutes, w.addContainerd, w.addKubelet, w.addKubeProxy, w.addEC2Events} {
		if err := add(); err != nil {
			return err
		}
	}
	nodeFirewall.addTo(&w.m, w.spec.AllowedCIDRs, w.spec.Cluster.PodCIDR)
	w.m.Certificates = withRenewal(w.spec.EarlyRenewal, w.m.Certificates...)
	return nil
}

// Traces returns what [WorkerSpec.Read] needs from a machine.
func (WorkerSpec) Traces() Traces {
	return Traces{
		Files:    slices.Concat(kubeletFiles, kubeProxyFiles, containerdFiles(), cniFiles, []string{nodeFirewall.path()}),
		Programs: []string{binPath(artifact.Kubelet), containerdProgram, runcPath, cniProgram},
	}
}

// Read returns the specification with the settings found on a worker. Its cluster and endpoint must
// be set. Labels that only an administrator may set are not on the machine but on its Node object.
// The error is a [NothingFoundError] if the machine is not a worker.
func (s WorkerSpec) Read(n Node, f Found) (WorkerSpec, error) {
	if s.Version == "" {
		var err error
		if s.Version, err = f.release(binPath(artifact.Kubelet)); err != nil {
			return s, err
		}
	}
	w := &worker{spec: s, node: n}
	w.readCNI(f)
	if s.AllowedCIDRs == nil {
		w.spec.AllowedCIDRs = nodeFirewall.allowed(f)
	}
	if err := errors.Join(w.validate(), w.spec.validate()); err != nil {
		return s, fmt.Errorf("worker %s: %w", n.Name, err)
	}
	// containerd's cgroup settings follow the kubelet's.
	for _, read := range []func(Found) error{w.readKubelet, w.readKubeProxy, w.readContainerd} {
		if err := read(f); err != nil {
			return s, err
		}
	}
	return w.spec, nil
}

func (s WorkerSpec) validate() error {
	if _, err := version.ParseSupported(s.Version); err != nil {
		return err
	}
	errs := []error{s.Cluster.validate(), s.Check().Err(), requireCAs(s.Cluster.PKI, pki.KubernetesCA)}
	if u, err := url.Parse(s.ControlPlaneEndpoint); err != nil || u.Scheme != "https" || u.Host == "" {
		errs = append(errs, fmt.Errorf("control plane endpoint %q is not an https URL", s.ControlPlaneEndpoint))
	}
	if !s.Cluster.DNSIP.IsValid() {
		errs = append(errs, errors.New("the cluster has no DNS address"))
	}
	if network := s.CNI.network(); network != CNIBridge && network != CNINone {
		errs = append(errs, fmt.Errorf("unknown CNI %q: want %q or %q", s.CNI.Network, CNIBridge, CNINone))
	}
	return errors.Join(errs...)
}

func (w *worker) validate() error {
	err := w.node.validate("").Err()
	if w.spec.CNI.network() == CNIBridge {
		err = errors.Join(err, w.validatePodCIDR())
	}
	return err
}

func (w *worker) validatePodCIDR() error {
	var errs invalid.Fields
	checkPodCIDR(&errs, "pod_cidr", w.node, w.spec.Cluster)
	if pods := w.node.PodCIDR; pods.IsValid() {
		errs.Add("pod_cidr", "Unusable network", HostPodCIDR.Check(pods))
	}
	return errs.Err()
}

// addPackages adds packages whose programs are called and which Debian's EC2 image lacks or may
// lose. mount and modprobe, for example, are on every machine on which a kubelet can run. Other
// programs in installation guides are not called: conntrack (kube-proxy uses netlink since
// Kubernetes 1.32, kubernetes#126847), socat (containerd forwards ports itself), ethtool (only
// kubeadm asks for it), libseccomp (linked statically into runc).
func (w *worker) addPackages(names ...string) {
	w.m.State.Packages = slices.Compact(slices.Sorted(slices.Values(append(w.m.State.Packages, names...))))
}

func (w *worker) addFiles(files ...desired.File) {
	w.m.State.Files = append(w.m.State.Files, files...)
}

// proxyOptions are the variables of a program that reaches the internet through the proxy. What is near does not change while
// the cluster lives, beside more: another value restarts the program, and for containerd the node is drained.
func (w *worker) proxyOptions(more ...string) []*unit.UnitOption {
	c := w.spec.Cluster
	near := append([]string{".svc", "." + c.Domain, c.PodCIDR.String(), c.ServiceCIDR.String()}, more...)
	return environment(w.spec.Proxy.Environment(near...))
}

// addProgram adds a Kubernetes program of a worker, its unit and its command line.
func (w *worker) addProgram(name, description, kind string, after []string, args, extra Args, options []*unit.UnitOption, restartOn ...string) error {
	return w.m.addProgram(w.spec.Artifacts, name, description, kind, after, args, extra, options, restartOn...)
}

func (w *worker) kubeconfig(path, user, name string) (desired.File, error) {
	return kubeconfig(path, w.spec.Cluster.Name, w.spec.ControlPlaneEndpoint, NodeCAPath, user, certPath(name), keyPath(name))
}

// kubeletRequest is the request for a node's only certificate: for its requests to the API server
// and for its own API.
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
