package component

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
)

const (
	// missingPath is a path that never exists. A program that has to read it exits.
	missingPath = "/run/k8s-rehearsal-end"
	// peerGate makes kube-apiserver connect to etcd before it loads its admission plugins.
	peerGate = "UnknownVersionInteroperabilityProxy"
	// maxComplaint is how many bytes of a program's output are quoted: some print their whole
	// configuration.
	maxComplaint = 600
)

// rehearsals are the words that, appended to a command line, make a program check its arguments and
// configuration files and exit. Some programs can print their configuration and exit. The others
// get a missing path for the last file that they read, and exit there. etcd needs no words, because
// it exits when it cannot open its ports in the rehearsal.
var rehearsals = map[string][]string{
	artifact.KubeAPIServer:         {"--feature-gates=" + peerGate + "=false", "--etcd-cafile=" + missingPath},
	artifact.KubeControllerManager: {"--authentication-kubeconfig=" + missingPath},
	artifact.KubeScheduler:         {"--write-config-to=/dev/null"},
	artifact.Kubelet:               {"--kubeconfig=" + missingPath},
	artifact.KubeProxy:             {"--write-config-to=/dev/null"},
	artifact.Containerd:            {"config", "dump"},
	artifact.Etcd:                  {},
}

// RehearsalArgs returns the words to append to a command line, which begins with the path of a
// program, so that the program exits once it has checked its settings. Use them only where the
// program can neither write nor connect. The result is false for a program that is not this
// project's.
func RehearsalArgs(command []string) ([]string, bool) {
	known, ok := rehearsals[path.Base(command[0])]
	args := slices.Clone(known)
	if slices.ContainsFunc(command, func(word string) bool {
		return strings.Contains(word, "feature-gates=") && strings.Contains(word, "kube:")
	}) {
		for i, word := range args { // either all feature gates have the prefix or none
			args[i] = strings.Replace(word, "feature-gates=", "feature-gates=kube:", 1)
		}
	}
	return args, ok
}

// sandboxComplaints matches complaints that only the sandbox of a rehearsal causes: no network, and
// nothing to write to.
var sandboxComplaints = regexp.MustCompile(`(?i)read-only file system|permission denied|operation not permitted|protocol not supported|` +
	`address family not supported|cannot assign requested address|address already in use|connection refused|network is unreachable|` +
	`no route to host|no default routes|no such host|i/o timeout|deadline exceeded|no space left|cannot allocate memory|runtime error`)

// Refusal returns in one line what a rehearsed program does not accept, by its exit status and what it
// complained of; empty if it accepts everything or the complaint is unclear.
func Refusal(status int, complaint string) string {
	switch status {
	case 1, 2, 255: // an error, a flag or a panic, klog.Fatal
	default:
		return ""
	}
	if strings.Contains(complaint, missingPath) || strings.Contains(complaint, peerGate) || sandboxComplaints.MatchString(complaint) {
		return ""
	}
	complaint, _, _ = strings.Cut(complaint, ", path: &") // the kubelet's whole configuration
	complaint = strings.Join(strings.Fields(complaint), " ")
	if len(complaint) > maxComplaint {
		complaint = strings.ToValidUTF8(complaint[:maxComplaint], "") + " ..."
	}
	return complaint
}
