// Package rollout brings many machines to what is wanted of them: which
// machine, in which order, behind which health gate. It is where an etcd
// cluster, a control plane, a pool of workers and a load balancer become more
// than machines that happen to run the same units.
//
// There is one way of change: certificates and secrets are materialised,
// every machine is observed, compared and applied to (package host), and what
// was applied is recorded as hashes. First installation, repair, change,
// upgrade and scaling are that one way in different orders; the order is
// computed as a [Plan] by pure functions before anything is touched.
//
// What a machine must look like is decided in package component; how it is
// reached, in package remote. Neither Terraform nor AWS may enter here.
package rollout

import (
	"context"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// Engine carries what every roll-out needs from its surroundings. It holds no
// state of its own and is safe for concurrent use.
type Engine struct {
	// Pool holds the SSH connections.
	Pool *remote.Pool
	// Store opens the key store a reference points to. It is asked only when
	// a key is really needed.
	Store func(pki.Ref) (pki.Store, error)
	// Now and Rand are the clock and the random source; nil means time.Now
	// and crypto/rand.
	Now  func() time.Time
	Rand io.Reader
	// Dial reaches the public endpoint of the API server; nil dials directly.
	Dial kube.DialFunc
	// Progress is told what is being done to which machine; nil is silent. It
	// is called from several goroutines at once and never with a secret.
	Progress func(machine, message string)
}

// Target is one machine and its place in the cluster.
type Target struct {
	Host remote.Host
	Node component.Node
}

// Record is what was last applied to a set of machines, as hashes. It is JSON
// and holds nothing secret. Losing it costs work, never data: the machines are
// then judged by what is on them.
type Record struct {
	Machines map[string]MachineRecord `json:"machines,omitempty"`
	// Formed is set once an etcd cluster has answered: from then on a member
	// without data is a lost member, not one that has yet to start.
	Formed bool `json:"formed,omitempty"`
	// Sealed is the digest of the EncryptionConfiguration that every API server
	// is known to work with, and by whose first key every secret is sealed.
	Sealed string `json:"sealed,omitempty"`
}

// MachineRecord is the part of a Record about one machine.
type MachineRecord struct {
	Host host.Record `json:"host"`
	// Certificates are the pairs last written, by the name of their slot.
	Certificates map[string]PairRecord `json:"certificates,omitempty"`
	// Secrets are the files last rendered from the key store, by path.
	Secrets map[string]SecretRecord `json:"secrets,omitempty"`
}

// PairRecord identifies a certificate and its key by hex SHA-256 of their files.
type PairRecord struct {
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

// SecretRecord identifies the content of a secret file and the keys it came
// from, as component.Secret.Origin says it.
type SecretRecord struct {
	Source string `json:"source"`
	SHA256 string `json:"sha256"`
}

// Report is what observing a set of machines found.
type Report struct {
	// Drift says in words what differs, by machine; several differences are
	// joined by "; ". Machines that could not be reached are not in it.
	Drift map[string]string
	// Unreachable holds the machines that could not be asked, and why.
	Unreachable map[string]error
	// Clocks holds how far clocks are ahead of the Engine's, negative for
	// behind, of those machines where it is enough to matter.
	Clocks map[string]time.Duration
	// Warnings tell what else could not be judged, one sentence each.
	Warnings []string
	// Certificates are those the role owns, as found on the machines.
	Certificates []CertificateStatus
	// Record is the record brought up to date with what was found as wanted;
	// keeping it spares the next look some hashing. It is never worse than the
	// one given.
	Record Record
}

// CertificateStatus is one certificate on one machine.
type CertificateStatus struct {
	Machine  string    `json:"machine"`
	Path     string    `json:"path"`
	Subject  string    `json:"subject"` // common name
	Issuer   string    `json:"issuer"`  // common name
	NotAfter time.Time `json:"not_after"`
}

// Etcd is an etcd cluster and the machines of its members.
// Spec.Members is derived from Targets.
type Etcd struct {
	Spec    component.EtcdSpec
	Targets []Target
}

// ControlPlane is the API servers, controller managers and schedulers of a
// cluster. Spec.Nodes is derived from Targets.
type ControlPlane struct {
	Spec    component.ControlPlaneSpec
	Targets []Target
}

// Workers is a pool of worker machines.
type Workers struct {
	Spec    component.WorkerSpec
	Targets []Target
	// Endpoint is where the operator reaches the API server: https://<host>:6443.
	Endpoint string
	// MaxUnavailable is how many nodes a roll may take down at once; 0 means 1.
	// As soon as one of them is Ready again the next is taken down.
	MaxUnavailable int
	// DrainTimeout bounds the draining of one node; 0 means DefaultDrainTimeout.
	DrainTimeout time.Duration
}

// LoadBalancer is HAProxy in front of the API servers.
type LoadBalancer struct {
	Spec    component.LoadBalancerSpec
	Targets []Target
}

// API is how to reach the API server of a running cluster.
type API struct {
	// Endpoint is https://<host>:6443.
	Endpoint string
	PKI      pki.Ref
}

// Addon is a set of objects owned together.
type Addon struct {
	API     API
	Name    string
	Objects []*unstructured.Unstructured
	// Wait makes ApplyObjects wait until the workloads among the objects are available.
	Wait bool
}

// ObserveEtcd compares the machines of an etcd cluster, and its membership,
// with what is wanted. It changes nothing and does not fail because a machine
// is unreachable.
func (e *Engine) ObserveEtcd(ctx context.Context, want Etcd, rec Record) (Report, error) {
	return e.observeEtcd(ctx, want, rec)
}

// ApplyEtcd brings an etcd cluster to what is wanted: members in parallel when
// there is no cluster yet, one at a time behind health gates otherwise. prior
// is what was wanted before, nil on creation; targets that were in it and are
// no longer wanted leave the cluster. The record is valid also when there is
// an error: it says what was done until then.
func (e *Engine) ApplyEtcd(ctx context.Context, want Etcd, prior *Etcd, rec Record) (Record, error) {
	return e.applyEtcd(ctx, want, prior, rec)
}

// RemoveEtcd stops etcd on all its machines and deletes its files and data.
// Machines that are gone are passed over.
func (e *Engine) RemoveEtcd(ctx context.Context, have Etcd, rec Record) error {
	return e.removeEtcd(ctx, have, rec)
}

// ObserveControlPlane compares the controllers, and the RBAC objects the API
// servers need, with what is wanted.
func (e *Engine) ObserveControlPlane(ctx context.Context, want ControlPlane, rec Record) (Report, error) {
	return e.observeControlPlane(ctx, want, rec)
}

// ApplyControlPlane installs all controllers in parallel when none serves yet,
// and rolls through them one at a time otherwise. See [ApplyEtcd] for prior and
// the record.
//
// [ApplyEtcd]: Engine.ApplyEtcd
func (e *Engine) ApplyControlPlane(ctx context.Context, want ControlPlane, prior *ControlPlane, rec Record) (Record, error) {
	return e.applyControlPlane(ctx, want, prior, rec)
}

// RemoveControlPlane stops the control plane on all its machines and deletes
// its files. Machines that are gone are passed over.
func (e *Engine) RemoveControlPlane(ctx context.Context, have ControlPlane, rec Record) error {
	return e.removeControlPlane(ctx, have, rec)
}

// ObserveWorkers compares the workers and their Node objects (labels, taints,
// pod CIDR) with what is wanted.
func (e *Engine) ObserveWorkers(ctx context.Context, want Workers, rec Record) (Report, error) {
	return e.observeWorkers(ctx, want, rec)
}

// ApplyWorkers brings the workers to what is wanted and waits until their nodes
// are Ready. Nodes are drained before what runs on them is disturbed.
//
// The rule: a change that restarts containerd, or replaces the kubelet's
// binary, drains the node first. A kubelet or kube-proxy restarted for any
// other reason, a file repaired or a certificate renewed does not: running
// pods do not notice. A node on which the kubelet is not running is repaired
// without draining, since nothing could be evicted gracefully from it.
func (e *Engine) ApplyWorkers(ctx context.Context, want Workers, prior *Workers, rec Record) (Record, error) {
	return e.applyWorkers(ctx, want, prior, rec)
}

// RemoveWorkers deletes the Node objects and stops everything on the machines.
// It does not drain: there may be nowhere left to go.
// Machines and API servers that are gone are passed over.
func (e *Engine) RemoveWorkers(ctx context.Context, have Workers, rec Record) error {
	return e.removeWorkers(ctx, have, rec)
}

// ObserveLoadBalancer compares the load balancer's machine with what is wanted.
func (e *Engine) ObserveLoadBalancer(ctx context.Context, want LoadBalancer, rec Record) (Report, error) {
	return e.observeLoadBalancer(ctx, want, rec)
}

// ApplyLoadBalancer brings HAProxy to what is wanted and waits until its port
// answers. Whether there is a healthy API server behind it is not its concern:
// the load balancer comes first.
func (e *Engine) ApplyLoadBalancer(ctx context.Context, want LoadBalancer, prior *LoadBalancer, rec Record) (Record, error) {
	return e.applyLoadBalancer(ctx, want, prior, rec)
}

// RemoveLoadBalancer stops HAProxy and deletes its files.
func (e *Engine) RemoveLoadBalancer(ctx context.Context, have LoadBalancer, rec Record) error {
	return e.removeLoadBalancer(ctx, have, rec)
}

// ObserveObjects says in words what differs between the addon's objects and
// the cluster's, by object ("ConfigMap kube-system/coredns"). Objects that are
// still in the inventory and no longer wanted count as differing.
func (e *Engine) ObserveObjects(ctx context.Context, want Addon, inventory []kube.ObjectRef) (Report, error) {
	return e.observeObjects(ctx, want, inventory)
}

// ApplyObjects applies the objects server-side, deletes those of the inventory
// that are no longer wanted, and returns the new inventory: also with an error,
// so that nothing applied is ever forgotten.
func (e *Engine) ApplyObjects(ctx context.Context, want Addon, inventory []kube.ObjectRef) ([]kube.ObjectRef, error) {
	return e.applyObjects(ctx, want, inventory)
}

// RemoveObjects deletes every object of the inventory. A cluster that is gone
// is an error: only the caller can know that it is meant to be.
func (e *Engine) RemoveObjects(ctx context.Context, have Addon, inventory []kube.ObjectRef) error {
	return e.removeObjects(ctx, have, inventory)
}

// FilesEtcd tells what will be on the machines: "<machine>:<path>" to
// "sha256:<hex>" for files that are not secret and for downloads, to "issued by
// <common name>" for certificates, and to "from <names in the key store>" for
// secrets. It is pure.
func FilesEtcd(want Etcd) (map[string]string, error) { return files(want.role()) }

// FilesControlPlane is [FilesEtcd] for a control plane.
func FilesControlPlane(want ControlPlane) (map[string]string, error) { return files(want.role()) }

// FilesWorkers is [FilesEtcd] for a worker pool.
func FilesWorkers(want Workers) (map[string]string, error) { return files(want.role()) }

// FilesLoadBalancer is [FilesEtcd] for a load balancer.
func FilesLoadBalancer(want LoadBalancer) (map[string]string, error) { return files(want.role()) }
