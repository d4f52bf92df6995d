package component

// Paths on a machine. Everything is owned by root; private keys have mode 0600. The paths of an
// etcd member, a controller and a worker differ, so that one machine can be all three.
const (
	binDir      = "/usr/local/bin"
	unitDir     = "/etc/systemd/system"
	runcPath    = "/usr/local/sbin/runc"
	cniBinDir   = "/opt/cni/bin"
	cniConfDir  = "/etc/cni/net.d"
	auditLogDir = "/var/log/kubernetes/audit"
	kubernetes  = "/etc/kubernetes"
	pkiDir      = "/etc/kubernetes/pki"
	// kubeletDir is the default of --root-dir.
	kubeletDir = "/var/lib/kubelet"
	// kubeletTmpfiles says what of the kubelet is removed when the machine boots (tmpfiles.d(5)).
	kubeletTmpfiles = "/etc/tmpfiles.d/kubelet.conf"
	etcdPKIDir      = "/etc/etcd/pki"
	containerdCf    = "/etc/containerd"
	// podResolverPath is the script that makes PodResolvConf.
	podResolverPath = "/usr/local/sbin/pod-resolver"
	// ec2EventsPath is the script that drains an EC2 instance before it ends or restarts.
	ec2EventsPath = "/usr/local/sbin/ec2-events"
)

// Paths that other packages use.
const (
	EtcdDataDir      = "/var/lib/etcd"
	EtcdBootstrapEnv = "/etc/etcd/bootstrap.env" // read by etcd only on a member's first start
	EtcdCAPath       = etcdPKIDir + "/ca.crt"
	EtcdServerCert   = etcdPKIDir + "/server.crt"
	EtcdServerKey    = etcdPKIDir + "/server.key"
	EtcdPeerCert     = etcdPKIDir + "/peer.crt"
	EtcdPeerKey      = etcdPKIDir + "/peer.key"

	EtcdBackupProgram = "/usr/local/sbin/etcd-backup"
	EtcdBackupDir     = "/var/lib/etcd-backup" // snapshots that wait for S3
	EtcdBackupConfDir = "/etc/etcd-backup"

	// CAPath and NodeCAPath restart everything that reads them. Since 1.36 client-go reloads a
	// changed CA, but only every five minutes (transport/ca_rotation.go), and so it does a changed
	// client certificate (transport/cert_rotation.go). The next step of a rotation relies on all
	// clients using what this one has written.
	CAPath                = pkiDir + "/ca.crt"
	CASigningPath         = pkiDir + "/ca-signing.crt"
	CAKeyPath             = pkiDir + "/ca.key"
	FrontProxyCAPath      = pkiDir + "/front-proxy-ca.crt"
	APIServerEtcdCAPath   = pkiDir + "/etcd-ca.crt"
	ServiceAccountPubPath = pkiDir + "/service-account.pub"
	ServiceAccountKeyPath = pkiDir + "/service-account.key"
	EncryptionConfigPath  = kubernetes + "/encryption-config.yaml"
	AuthenticationPath    = kubernetes + "/authentication.yaml"
	AuditPolicyPath       = kubernetes + "/audit-policy.yaml"
	AdmissionPath         = kubernetes + "/admission.yaml"
	AuditLogPath          = auditLogDir + "/audit.log"
	ManagerKubeconfig     = kubernetes + "/kube-controller-manager.kubeconfig"
	SchedulerKubeconfig   = kubernetes + "/kube-scheduler.kubeconfig"
	SchedulerConfigPath   = kubernetes + "/kube-scheduler.yaml"

	RootCAPath = pkiDir + "/root-ca.crt" // with what pods verify API servers

	NodeCAPath          = pkiDir + "/node-ca.crt"
	KubeletKubeconfig   = kubernetes + "/kubelet.kubeconfig"
	KubeletConfigPath   = kubernetes + "/kubelet.yaml"
	KubeProxyKubeconfig = kubernetes + "/kube-proxy.kubeconfig"
	KubeProxyConfigPath = kubernetes + "/kube-proxy.yaml"
	// PodResolvConf is a link that the kubelet's unit makes before each start.
	PodResolvConf      = "/run/kubernetes/resolv.conf"
	PodEgressPath      = kubernetes + "/pod-egress.nft"
	ContainerdConfig   = containerdCf + "/config.toml"
	ContainerdHostsDir = containerdCf + "/certs.d"
	ContainerdSocket   = "/run/containerd/containerd.sock"
	CNIConfigPath      = cniConfDir + "/10-bridge.conflist"

	HAProxyConfig      = "/etc/haproxy/haproxy.cfg"
	HAProxyCAPath      = "/etc/haproxy/kubernetes-ca.crt"
	HAProxyStatsSocket = "/run/haproxy/admin.sock"
	// VirtualAddressConfig is the template of keepalived's configuration.
	VirtualAddressConfig = "/etc/haproxy/virtual-address.conf"
)

// WorkerDirs hold only the data of a worker.
var WorkerDirs = []string{kubeletDir, "/var/lib/containerd", "/var/lib/cni", ContainerdHostsDir}

// Names of the systemd units.
const (
	EtcdUnit              = "etcd.service"
	EtcdBackupUnit        = "etcd-backup.service"
	EtcdBackupTimer       = "etcd-backup.timer"
	APIServerUnit         = "kube-apiserver.service"
	ControllerManagerUnit = "kube-controller-manager.service"
	SchedulerUnit         = "kube-scheduler.service"
	ContainerdUnit        = "containerd.service"
	KubeletUnit           = "kubelet.service"
	KubeProxyUnit         = "kube-proxy.service"
	PodEgressUnit         = "pod-egress.service"
	EC2EventsUnit         = "ec2-events.service"
	HAProxyUnit           = "haproxy.service"
	VirtualAddressUnit    = "k8s-virtual-address.service"
)

// DefaultSandboxImage is the image of pods' sandboxes.
const DefaultSandboxImage = "registry.k8s.io/pause:3.10.2"

// Fixed ports.
const (
	EtcdClientPort = 2379
	EtcdPeerPort   = 2380
	APIServerPort  = 6443
)

func certPath(name string) string { return pkiDir + "/" + name + ".crt" }
func keyPath(name string) string  { return pkiDir + "/" + name + ".key" }
func unitPath(unit string) string { return unitDir + "/" + unit }
func binPath(name string) string  { return binDir + "/" + name }
