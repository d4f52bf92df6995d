package rollout

import (
	"maps"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
)

// Record is what was last applied to a set of machines, as hashes. It is JSON and holds no secrets.
// Without it a comparison uses only what is on the machines, which takes longer.
type Record struct {
	// Claim distinguishes this record from others of the same role. Apply makes one at random if
	// there is none, and writes it to /var/lib/k8s-from-scratch/claims/<role> on every machine.
	// Remove leaves a machine with another claim as it is, and so does an Apply for a machine that
	// has left the role.
	Claim    string                   `json:"claim,omitempty"`
	Machines map[string]MachineRecord `json:"machines,omitempty"`
	// Formed is set once an etcd cluster has answered. From then on a member without data has lost
	// them, rather than not having started yet.
	Formed bool `json:"formed,omitempty"`
	// Restored is the restore of an etcd cluster that has been done, if one is wanted.
	Restored *Restored `json:"restored,omitempty"`
	// Loaded are the digests of the files that every API server is known to have loaded, of those that it reloads by
	// itself, by path.
	Loaded map[string]string `json:"loaded,omitempty"`
	// Sealed is the digest of the EncryptionConfiguration with whose first key every secret is encrypted.
	Sealed string `json:"sealed,omitempty"`
	// Left are machines that could not be reached when they left the role, by name: something of it
	// is still on them. The role is removed from them as soon as they answer an Apply.
	Left map[string]Leftover `json:"left,omitempty"`
	// Concerns are facts that a person should know after an Apply, as in a [Report]. They are not kept.
	Concerns []finding.Finding `json:"-"`
}

// Restored is a restore that has been done.
type Restored struct {
	Mark string `json:"mark"` // that of the restore that was wanted
	From string `json:"from"` // the name of the snapshot, or of the member
	// Ended is set once all members are those of the restored cluster. From then on ReplaceData of
	// the restore allows nothing more.
	Ended bool `json:"ended,omitempty"`
}

// Leftover is what is left of a role on a machine that has left it.
type Leftover struct {
	Target fleet.Target  `json:"target"`
	State  desired.State `json:"state"` // names only, no contents
}

func (r Record) clone() Record {
	r.Machines, r.Left = maps.Clone(r.Machines), maps.Clone(r.Left)
	if r.Machines == nil {
		r.Machines = map[string]MachineRecord{}
	}
	return r
}

// MachineRecord is one machine's part of a Record.
type MachineRecord struct {
	Host host.Record `json:"host"`
	// Certificates are the pairs last written, by the name of their slot.
	Certificates map[string]PairRecord `json:"certificates,omitempty"`
	// Secrets are the files last rendered from the key store, by path.
	Secrets map[string]SecretRecord `json:"secrets,omitempty"`
	// Placed are the files of the user that are on the machine, or may be, with the units that restart when one goes.
	Placed map[string][]string `json:"placed,omitempty"`
	// Unproven is set while it is not known whether the load balancer sends clients to an API server
	// that was changed.
	Unproven bool `json:"unproven,omitempty"`
}

// PairRecord identifies a certificate and its key by hex SHA-256 of their files.
type PairRecord struct {
	Certificate string `json:"certificate"`
	Key         string `json:"key"`
}

// SecretRecord identifies the content of a secret file and the keys it was made from, as
// component.Secret.Origin returns them.
type SecretRecord struct {
	Source string `json:"source"`
	SHA256 string `json:"sha256,omitempty"`
	Sealed string `json:"sealed,omitempty"` // bcrypt hash of the digest of what the user gave, instead of SHA256
}

func (r MachineRecord) clone() MachineRecord {
	r.Certificates = maps.Clone(r.Certificates)
	r.Secrets = maps.Clone(r.Secrets)
	if r.Certificates == nil {
		r.Certificates = map[string]PairRecord{}
	}
	if r.Secrets == nil {
		r.Secrets = map[string]SecretRecord{}
	}
	r.Placed = maps.Clone(r.Placed)
	if r.Placed == nil {
		r.Placed = map[string][]string{}
	}
	return r
}
