package host

import (
	"cmp"
	"errors"
	"strconv"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
)

// Step is one action of an Apply or a Remove.
type Step struct {
	Kind StepKind
	// Target is what it acts on: a path, a kernel module, a sysctl, the names of packages or units,
	// or a download. It may be empty.
	Target string
	// URL is what could not be fetched over HTTP by a download or a package installation; empty if
	// something else failed.
	URL string
}

// StepKind is a kind of step. apply.sh, apply_packages.sh and await_boot.sh use the same names.
type StepKind string

// The kinds of steps.
const (
	StepPrepare         StepKind = "prepare"
	StepReceive         StepKind = "receive"
	StepLock            StepKind = "lock"
	StepDownload        StepKind = "download"
	StepCloudInit       StepKind = "cloud-init" // the unit is the stage that is waited for; without one, the target is a shutdown
	StepPackages        StepKind = "packages"
	StepTrust           StepKind = "trust" // the authorities of a file
	StepModule          StepKind = "module"
	StepSysctl          StepKind = "sysctl"
	StepCreateDirectory StepKind = "create-directory"
	StepMoveAside       StepKind = "move-aside"
	StepAttributes      StepKind = "attributes" // mode and owner
	StepUnpack          StepKind = "unpack"
	StepInstall         StepKind = "install"
	StepWrite           StepKind = "write"
	StepDrop            StepKind = "drop" // a file that is not wanted
	StepEnable          StepKind = "enable"
	StepDisable         StepKind = "disable"
	StepReload          StepKind = "daemon-reload"
	StepStartUnit       StepKind = "start"
	StepStopUnit        StepKind = "stop"
	StepRestartUnit     StepKind = "restart"
	StepReloadUnit      StepKind = "reload"
	StepRetire          StepKind = "retire"   // delete the files of a unit that must be gone
	StepCleanUp         StepKind = "clean-up" // remove what it has left in the kernel
	StepVerify          StepKind = "verify"
	StepRemove          StepKind = "remove"
)

// stepWords are the words of steps whose kind is not descriptive enough.
var stepWords = map[StepKind]string{
	StepReceive:         "receive the upload",
	StepLock:            "wait for another apply on the machine",
	StepDownload:        "download {target} from {url}",
	StepCloudInit:       "wait for {target}",
	StepPackages:        "install packages {target}",
	StepTrust:           "trust the authorities in {target}",
	StepModule:          "load kernel module {target}",
	StepSysctl:          "set sysctl {target}",
	StepCreateDirectory: "create directory {target}",
	StepMoveAside:       "move {target} aside",
	StepAttributes:      "set mode and owner of {target}",
	StepDrop:            "remove {target}",
	StepReload:          "systemctl daemon-reload",
	StepRetire:          "delete the files of {target}",
	StepCleanUp:         "clean up after {target}",
}

// String returns the step in the words of an error.
func (s Step) String() string {
	words, known := stepWords[s.Kind]
	if !known {
		return strings.TrimSpace(string(s.Kind) + " " + s.Target)
	}
	return strings.TrimSpace(strings.NewReplacer("{target}", s.Target, "{url}", s.URL).Replace(words))
}

// stepError reads the "failed" frame that die in apply.sh writes.
func stepError(machine, fields string, want desired.State) *ApplyError {
	f := append(strings.SplitN(fields, "\n", 5), "", "", "", "")
	e := &ApplyError{Machine: machine, Step: Step{Kind: StepKind(f[0]), Target: f[1]}, Unit: f[2], Room: parseRoom(f[3]),
		Said: foreign.Text(strings.TrimSpace(withoutHint(f[4])))}
	e.Err = errors.New(cmp.Or(e.Said, "failed"))
	switch e.Step.Kind {
	case StepDownload: // Target is the digest
		for _, b := range want.Binaries {
			if b.SHA256 == f[1] {
				e.Step.Target, e.Step.URL = title(b), b.URL
			}
		}
	case StepPackages:
		e.Step.URL = unfetchedURL(e.Said)
	}
	return e
}

// parseRoom reads the output of space in apply.sh; nil if it is empty. Any output means that there
// was too little space, even if df reported nothing.
func parseRoom(s string) *Room {
	f := strings.SplitN(s, " ", 5)
	if len(f) != 5 {
		return nil
	}
	return &Room{Free: kib(f[0]), Size: kib(f[1]), Inodes: f[2], Device: f[3], Mount: f[4]}
}

// kib reads a size of df, UnknownSize when it is none.
func kib(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return UnknownSize
	}
	return n
}
