package component

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/coreos/go-systemd/v22/unit"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/access"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// ControlPlaneSpec describes a control plane.
type ControlPlaneSpec struct {
	Cluster       Cluster
	Version       string
	EndpointNames []string // hosts (names or addresses) of the endpoints for people and for nodes, without ports
	Nodes         []Node
	EtcdEndpoints []string            // "https://10.240.0.10:2379"
	Artifacts     []artifact.Artifact // of every architecture among the nodes
	// ShutdownDelay is how long a stopping API server still serves after /readyz fails, so that the
	// load balancer notices first; zero means DefaultShutdownDelay.
	ShutdownDelay time.Duration
	// AllowedCIDRs are the networks that may reach the programs, beside pods; nil means that everybody may.
	AllowedCIDRs []netip.Prefix
	// Access says who may do what. It is in the cluster's objects, and on no machine.
	Access []access.Entry

	APIServer         APIServerSpec
	ControllerManager ControllerManagerSpec
	Scheduler         SchedulerSpec
	EarlyRenewal      time.Duration // of certificates; zero means pki.DefaultEarlyRenewal
	Extra             []desired.ExtraFile
}

// Check reports settings that the release would reject, and networks that no cluster can have.
func (s ControlPlaneSpec) Check() invalid.Fields {
	v, _ := version.Parse(s.Version)
	return slices.Concat(s.Cluster.CheckNetworks(), s.APIServer.check(v, s.Cluster), s.Scheduler.check(v), s.checkPairs(), access.Check(s.Access))
}

// checkPairs reports a flag that two programs have and that must be the same for both.
func (s ControlPlaneSpec) checkPairs() (errs invalid.Fields) {
	const flag = "enable-garbage-collector"
	server, manager := cmp.Or(s.APIServer.Args.last(flag), "true"), cmp.Or(s.ControllerManager.Args.last(flag), "true")
	if server != manager {
		errs.Say(ArgField(artifact.KubeControllerManager, flag), "Flags that differ", "kube-apiserver and kube-controller-manager need the same --%s, and have %s and %s.", flag, server, manager)
	}
	return errs
}

// User names in the control plane's own certificates.
const (
	kubeletClientUser = "kube-apiserver-kubelet-client"
	etcdClientUser    = "kube-apiserver-etcd-client"
	frontProxyUser    = "front-proxy-client"
	managerUser       = "system:kube-controller-manager"
	schedulerUser     = "system:kube-scheduler"
)

// localAPIServer is the endpoint for managers and schedulers: the API server on their own machine.
var localAPIServer = endpointURL(loopback, APIServerPort)

// controller builds the Machine of one controller.
type controller struct {
	spec ControlPlaneSpec
	node Node
	m    Machine
}

// ControlPlane returns what one controller must look like: kube-apiserver, kube-controller-manager
// and kube-scheduler. The error is about the specification.
func ControlPlane(spec ControlPlaneSpec, n Node) (Machine, error) {
	m, err := controlPlane(spec, n)
	if err != nil {
		return Machine{}, fmt.Errorf("control plane on %s: %w", n.Name, err)
	}
	return m, nil
}

func controlPlane(spec ControlPlaneSpec, n Node) (Machine, error) {
	c, err := newController(spec, n)
	if err != nil {
		return Machine{}, err
	}
	c.m.State.Directories = []desired.Directory{
		{Path: kubernetes, Mode: 0o755},
		{Path: pkiDir, Mode: 0o755},
		{Path: auditLogDir, Mode: 0o700},
	}
	ref := spec.Cluster.PKI
	c.addFiles(
		caFile(CAPath, ref.KubernetesCA),
		caFile(FrontProxyCAPath, ref.FrontProxyCA),
		caFile(APIServerEtcdCAPath, ref.EtcdCA),
		caFile(ServiceAccountPubPath, ref.ServiceAccountPublicKey),
	)
	for _, add := range []func() error{c.addAPIServer, c.addControllerManager, c.addScheduler, c.addPodRoutes} {
		if err := add(); err != nil {
			return Machine{}, err
		}
	}
	controllerFirewall.addTo(&c.m, spec.AllowedCIDRs, spec.Cluster.PodCIDR)
	c.m.Certificates = withRenewal(spec.EarlyRenewal, c.m.Certificates...)
	return c.m.with(spec.Cluster, spec.Extra), nil
}

// newController returns a controller without files, or the specification's errors.
func newController(spec ControlPlaneSpec, n Node) (*controller, error) {
	_, err := version.ParseSupported(spec.Version)
	err = errors.Join(err, slices.Concat(spec.Cluster.checkForms(), spec.Check()).Err(), validateMembers("hosts", spec.Nodes, n),
		requireCAs(spec.Cluster.PKI, pki.KubernetesCA, pki.EtcdCA, pki.FrontProxyCA))
	if len(spec.EtcdEndpoints) == 0 {
		err = errors.Join(err, errors.New("no etcd endpoints"))
	}
	spec.Artifacts = artifact.OfArch(spec.Artifacts, n.Arch)
	return &controller{spec: spec, node: n}, err
}

// Traces returns what [ControlPlaneSpec.Read] needs from a machine.
func (ControlPlaneSpec) Traces() Traces {
	return Traces{Files: slices.Concat(apiServerFiles, controllerManagerFiles, schedulerFiles, []string{controllerPodRoutes.list(), controllerFirewall.path()}), Programs: []string{binPath(artifact.KubeAPIServer)}}
}

// Read returns the specification with the settings found on a controller. Its endpoints and nodes
// must be set. The error is a [NothingFoundError] if the machine is not a controller.
func (s ControlPlaneSpec) Read(n Node, f Found) (ControlPlaneSpec, error) {
	if s.Version == "" {
		var err error
		if s.Version, err = f.release(binPath(artifact.KubeAPIServer)); err != nil {
			return s, err
		}
	}
	s.Cluster.readServerNetworks(f)
	s.Cluster.readManagerNetworks(f)
	s.Cluster.readPodRoutes(f)
	if s.AllowedCIDRs == nil {
		s.AllowedCIDRs = controllerFirewall.allowed(f)
	}
	c, err := newController(s, n)
	if err != nil {
		return s, fmt.Errorf("control plane on %s: %w", n.Name, err)
	}
	for _, read := range []func(Found) error{c.readAPIServer, c.readControllerManager, c.readScheduler} {
		if err := read(f); err != nil {
			return s, err
		}
	}
	return c.spec, nil
}

// addProgram adds a Kubernetes program of a controller, its unit and its command line. On a controller
// that is a node, pods can use up the memory. The kernel then ends a pod first: kubeadm's static pods
// have the same score.
func (c *controller) addProgram(name, description, kind string, after []string, args, extra Args, restartOn ...string) error {
	options := append(limitNoFile("1048576"), unit.NewUnitOption("Service", "OOMScoreAdjust", "-997"))
	return c.m.addProgram(c.spec.Artifacts, name, description, kind, after, args, extra, options, restartOn...)
}

func (c *controller) addFiles(files ...desired.File) {
	c.m.State.Files = append(c.m.State.Files, files...)
}

// addCertificate adds a certificate and its key under a name in the PKI directory.
func (c *controller) addCertificate(name string, ca pki.CAName, r pki.Request) {
	c.m.Certificates = append(c.m.Certificates, slot(name, certPath(name), keyPath(name), ca, r))
}

// componentRequest is the request for a manager's or scheduler's only certificate: for its requests
// to the API server and for its own secure port.
func componentRequest(user, name string) pki.Request {
	return pki.Request{
		CommonName: user, DNSNames: []string{name, "localhost"}, IPs: []netip.Addr{loopback},
		Server: true, Client: true,
	}
}
