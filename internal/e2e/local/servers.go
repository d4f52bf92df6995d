package local

import (
	"fmt"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// Member is an etcd member.
type Member struct {
	Name      string
	ClientURL string
	PeerURL   string
	Flags     []string // further flags of etcd

	program, dir, ca, cert, key string
}

// NewMember returns a member with ports, a certificate and an empty data directory.
func NewMember(t *testing.T, p PKI, program, name string) Member {
	t.Helper()
	m := Member{Name: name, program: program, dir: t.TempDir(),
		ClientURL: fmt.Sprintf("https://127.0.0.1:%d", freePort(t)),
		PeerURL:   fmt.Sprintf("https://127.0.0.1:%d", freePort(t)),
		ca:        p.file(t, "etcd-ca.crt", []byte(p.Ref.EtcdCA)),
	}
	m.cert, m.key = p.files(t, name, pki.EtcdCA, pki.Request{CommonName: name, IPs: loopback, Server: true, Client: true})
	return m
}

// Start runs the member. On its first start it joins members (including itself), which exist
// already if existing is true.
func (m Member) Start(t *testing.T, existing bool, members ...Member) *Process {
	t.Helper()
	var initial []string
	for _, x := range members {
		initial = append(initial, x.Name+"="+x.PeerURL)
	}
	state := "new"
	if existing {
		state = "existing"
	}
	args := []string{"--name=" + m.Name, "--data-dir=" + m.dir,
		"--listen-client-urls=" + m.ClientURL, "--advertise-client-urls=" + m.ClientURL,
		"--listen-peer-urls=" + m.PeerURL, "--initial-advertise-peer-urls=" + m.PeerURL,
		"--initial-cluster=" + strings.Join(initial, ","), "--initial-cluster-state=" + state,
		"--trusted-ca-file=" + m.ca, "--cert-file=" + m.cert, "--key-file=" + m.key, "--client-cert-auth=true",
		"--peer-trusted-ca-file=" + m.ca, "--peer-cert-file=" + m.cert, "--peer-key-file=" + m.key, "--peer-client-cert-auth=true",
		"--unsafe-no-fsync=true"}
	return start(t, m.Name, m.program, append(args, m.Flags...)...)
}

// Client connects to the member.
func (m Member) Client(t *testing.T, p PKI) *etcd.Client {
	t.Helper()
	pair := p.Issue(t, pki.EtcdCA, pki.Request{CommonName: "test", Client: true})
	c, err := etcd.New(etcd.Access{Endpoint: m.ClientURL, CA: []byte(p.Ref.EtcdCA), Cert: pair.CertPEM, Key: pair.KeyPEM})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// APIServer is a kube-apiserver with its own etcd. No other part of a control plane runs.
type APIServer struct {
	Endpoint string
	process  *Process
}

// StartAPIServer starts etcd and an API server, and waits until it is ready.
func StartAPIServer(t *testing.T, p PKI) *APIServer {
	t.Helper()
	member := NewMember(t, p, EtcdProgram(t), "etcd")
	member.Start(t, false, member)

	key, err := p.Store.Get(t.Context(), pki.KeyServiceAccount)
	if err != nil {
		t.Fatal(err)
	}
	cert, certKey := p.files(t, "apiserver", pki.KubernetesCA, pki.Request{CommonName: "kube-apiserver", IPs: loopback, Server: true})
	etcdCert, etcdKey := p.files(t, "apiserver-etcd-client", pki.EtcdCA, pki.Request{CommonName: "kube-apiserver-etcd-client", Client: true})
	port := freePort(t)
	s := &APIServer{Endpoint: fmt.Sprintf("https://127.0.0.1:%d", port)}
	s.process = start(t, "kube-apiserver", KubernetesProgram(t, "kube-apiserver"),
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file="+cert, "--tls-private-key-file="+certKey,
		"--client-ca-file="+p.file(t, "ca.crt", []byte(p.Ref.KubernetesCA)),
		"--etcd-servers="+member.ClientURL, "--etcd-cafile="+member.ca, "--etcd-certfile="+etcdCert, "--etcd-keyfile="+etcdKey,
		"--authorization-mode=Node,RBAC", "--service-cluster-ip-range=10.32.0.0/24",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+p.file(t, "sa.pub", []byte(p.Ref.ServiceAccountPublicKey)),
		"--service-account-signing-key-file="+p.file(t, "sa.key", key))
	c := s.Client(t, p)
	if err := c.WaitReady(t.Context(), pollInterval, nil); err != nil {
		t.Fatal(err)
	}
	return s
}

// StartControllerManager starts the controllers of a cluster. Nothing runs its pods.
func (s *APIServer) StartControllerManager(t *testing.T, p PKI, flags ...string) {
	t.Helper()
	key, err := p.Store.Get(t.Context(), pki.KeyServiceAccount)
	if err != nil {
		t.Fatal(err)
	}
	ca := p.file(t, "root-ca.crt", []byte(p.Ref.KubernetesCA))
	cert, certKey := p.files(t, "controller-manager", pki.KubernetesCA, pki.Request{CommonName: "system:kube-controller-manager", Client: true})
	kubeconfig := p.file(t, "controller-manager.kubeconfig", fmt.Appendf(nil, `{"apiVersion": "v1", "kind": "Config", "current-context": "local",
"clusters": [{"name": "local", "cluster": {"server": %q, "certificate-authority": %q}}],
"users": [{"name": "local", "user": {"client-certificate": %q, "client-key": %q}}],
"contexts": [{"name": "local", "context": {"cluster": "local", "user": "local"}}]}`, s.Endpoint, ca, cert, certKey))
	start(t, "kube-controller-manager", KubernetesProgram(t, "kube-controller-manager"), append([]string{
		"--kubeconfig=" + kubeconfig, "--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", freePort(t)), "--leader-elect=false",
		"--use-service-account-credentials=true", "--root-ca-file=" + ca, "--service-account-private-key-file=" + p.file(t, "controller-manager-sa.key", key)}, flags...)...)
}

// Stop stops the API server.
func (s *APIServer) Stop() { s.process.Stop() }

// Client connects as an administrator.
func (s *APIServer) Client(t *testing.T, p PKI) *kube.Client {
	t.Helper()
	pair := p.Issue(t, pki.KubernetesCA, pki.Request{CommonName: "test", Organizations: []string{"system:masters"}, Client: true})
	c, err := kube.New(kube.Access{Endpoint: s.Endpoint, CA: []byte(p.Ref.KubernetesCA), Cert: pair.CertPEM, Key: pair.KeyPEM})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
