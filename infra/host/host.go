// Package host brings one machine to a desired state: it observes the machine in one round trip,
// compares what it found with what is wanted, and applies the difference in one upload.
//
// Every state of a machine changes only through Observe, Diff and Apply: first installation, the
// drift in a plan, repair and upgrade are the same three steps. Diff is pure. After an Apply that
// was interrupted at any moment, the next Observe, Diff and Apply converge.
//
// The machine needs POSIX sh, coreutils, tar, curl, systemd and root, and apt or dnf if packages
// are wanted. Packages are installed once no other process holds the package locks; that cloud-init, if
// present, has ended is for AwaitBoot to say. What may not enter: Kubernetes (package component knows what is wanted
// and why), actions other than bringing a machine to a state (package deed), the order of machines
// (package rollout) and Terraform.
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

// Record is what the last verified Apply left on the machine. It saves Observe hashing large
// programs and tells Diff from which download a program came. It is JSON and holds no secrets. The
// zero Record is valid.
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
	// SkipRestart installs everything but does not start, restart, reload or stop a unit. The
	// restarts stay pending on the machine and the next Diff reports them.
	SkipRestart bool
	// Progress is called with what is being done, in a few words. It is called from another
	// goroutine, but never after Apply has returned.
	Progress func(string)
}
