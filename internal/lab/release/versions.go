package release

// Versions of what the lab serves, as upstream spells its tags.
const (
	// The defaults of Versions.
	KubernetesVersion = "v1.36.4"
	EtcdVersion       = "v3.6.16"
	ContainerdVersion = "v2.3.7"

	RuncVersion     = "v1.5.2"
	CNIVersion      = "v1.9.1"
	OpenTofuVersion = "v1.12.6"
	GatewayVersion  = "v1.8.0" // of versitygw

	PauseVersion            = "3.10.2"
	CoreDNSVersion          = "v1.15.0"
	OlderCoreDNSVersion     = "v1.14.6" // for a move between releases
	MetricsServerVersion    = "v0.9.0"
	CloudControllersVersion = "v1.37.1" // of k8s.io/cloud-provider-aws
	LocalPathVersion        = "v0.0.30" // of github.com/rancher/local-path-provisioner
	AgnhostVersion          = "2.63.0"  // test/images/agnhost/VERSION of KubernetesVersion
	ToolboxVersion          = "1"

	CiliumVersion  = "v1.19.6"
	HelmVersion    = "v4.3.1"
	TraefikVersion = "v3.6.12" // as new as the tests can build it
)

// Image references as manifests and the container runtime name them.
const (
	PauseImage            = "registry.k8s.io/pause:" + PauseVersion
	CoreDNSImage          = "registry.k8s.io/coredns/coredns:" + CoreDNSVersion
	OlderCoreDNSImage     = "registry.k8s.io/coredns/coredns:" + OlderCoreDNSVersion
	MetricsServerImage    = "registry.k8s.io/metrics-server/metrics-server:" + MetricsServerVersion
	CloudControllersImage = "registry.k8s.io/provider-aws/cloud-controller-manager:" + CloudControllersVersion
	LocalPathImage        = "docker.io/rancher/local-path-provisioner:" + LocalPathVersion
	CiliumImage           = "quay.io/cilium/cilium:" + CiliumVersion
	CiliumOperatorImage   = "quay.io/cilium/operator-generic:" + CiliumVersion
	TraefikImage          = "docker.io/library/traefik:" + TraefikVersion
	// AgnhostImage is what Kubernetes' own tests run in pods. The exercises use its webhook server.
	AgnhostImage = "registry.k8s.io/e2e-test-images/agnhost:" + AgnhostVersion
	// ToolboxImage is the lab's own test image: a busybox with a shell, nslookup, wget, nc and
	// httpd. It is served for any registry host.
	ToolboxImage = "k8s-lab/toolbox:" + ToolboxVersion
)

// The platform of all machines of the lab.
const (
	goos   = "linux"
	goarch = "amd64"
)
