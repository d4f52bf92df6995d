// Package host brings one machine to a desired state: it observes the machine
// in one round trip, compares what it found with what is wanted, and applies
// the difference in one upload.
//
// Observe, Diff and Apply are the only way a state of a machine changes: first
// installation, the drift a plan shows, repair and upgrade are all the same
// three steps. Diff is pure. Whatever instant an Apply is interrupted at, the
// next Observe, Diff and Apply converge.
//
// Of the machine it asks for POSIX sh, coreutils, tar, curl, systemd and root,
// and for apt or dnf where packages are wanted. It installs packages once
// cloud-init, where there is one, has ended and nobody else is at it.
// What may not enter: Kubernetes (package component knows what is wanted and
// why), what is done on a machine and is no state (package deed), the order
// between machines (package rollout) and Terraform.
package host

import (
	"context"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// Runner runs commands on the machine. [*remote.Machine] is one.
type Runner interface {
	Name() string
	Run(ctx context.Context, cmd remote.Command) (remote.Output, error)
}

var _ Runner = (*remote.Machine)(nil)

// Record is what the last verified Apply left on the machine. It spares
// Observe the hashing of large programs and tells Diff which download a program
// came from. It is plain JSON and holds nothing secret. The zero Record is valid.
type Record struct {
	Files map[string]FileRecord `json:"files,omitempty"` // by path
}

// FileRecord identifies one installed file.
type FileRecord struct {
	SHA256 string `json:"sha256"`           // hex digest of the file itself
	Size   int64  `json:"size"`             // bytes
	MTime  int64  `json:"mtime"`            // nanoseconds since 1970
	Inode  uint64 `json:"inode"`            //
	Source string `json:"source,omitempty"` // hex digest of the download it came from
}

// Options modify an Apply.
type Options struct {
	// SkipRestart installs everything but neither starts, restarts, reloads
	// nor stops a unit. The restarts stay pending on the machine: the next
	// Diff reports them.
	SkipRestart bool
	// Progress is told what is being done, in a few words each time. It is
	// called from another goroutine, but not after Apply has returned.
	Progress func(string)
}
