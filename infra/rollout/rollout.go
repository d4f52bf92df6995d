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
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// Engine rolls out roles. It holds no state of its own and is safe for
// concurrent use.
type Engine struct {
	Fleet *fleet.Fleet
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
	Targets []fleet.Target
}

// ControlPlane is the API servers, controller managers and schedulers of a
// cluster. Spec.Nodes is derived from Targets.
type ControlPlane struct {
	Spec    component.ControlPlaneSpec
	Targets []fleet.Target
}

// Workers is a pool of worker machines.
type Workers struct {
	Spec    component.WorkerSpec
	Targets []fleet.Target
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
	Targets []fleet.Target
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
