package component

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

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
// it exits when it cannot open its ports in the rehearsal. containerd runs twice: what it has read is compared
// with what it can read.
var rehearsals = map[string][][]string{
	artifact.KubeAPIServer:         {{"--feature-gates=" + peerGate + "=false", "--etcd-cafile=" + missingPath}},
	artifact.KubeControllerManager: {{"--authentication-kubeconfig=" + missingPath}},
	artifact.KubeScheduler:         {{"--write-config-to=/dev/null"}},
	artifact.Kubelet:               {{"--kubeconfig=" + missingPath}},
	artifact.KubeProxy:             {{"--write-config-to=/dev/null"}},
	artifact.Containerd:            {{"config", "dump"}, {"config", "default"}},
	artifact.Etcd:                  {{}},
}

// RehearsalArgs returns the words to append to a command line, which begins with the path of a
// program, so that the program exits once it has checked its settings: one list for each time that it has to be
// run. Use them only where the program can neither write nor connect. There are none for a program that is not
// this project's.
func RehearsalArgs(command []string) [][]string {
	var runs [][]string
	for _, known := range rehearsals[path.Base(command[0])] {
		runs = append(runs, withPrefix(command, known))
	}
	return runs
}

// withPrefix returns words whose feature gates have the prefix that those of the command line have.
func withPrefix(command, known []string) []string {
	args := slices.Clone(known)
	if slices.ContainsFunc(command, func(word string) bool {
		return strings.Contains(word, "feature-gates=") && strings.Contains(word, "kube:")
	}) {
		for i, word := range args { // either all feature gates have the prefix or none
			args[i] = strings.Replace(word, "feature-gates=", "feature-gates=kube:", 1)
		}
	}
	return args
}

// sandboxComplaints matches complaints that only the sandbox of a rehearsal causes: no network, and
// nothing to write to.
var sandboxComplaints = regexp.MustCompile(`(?i)read-only file system|permission denied|operation not permitted|protocol not supported|` +
	`address family not supported|cannot assign requested address|address already in use|connection refused|network is unreachable|` +
	`no route to host|no default routes|no such host|i/o timeout|deadline exceeded|no space left|cannot allocate memory|runtime error`)

// Refusal returns in one line why a rehearsed program would not do what it is told: "would not start: ...", or "would
// start, but nothing reads ...". It takes the exit status, all the output, and the complaint in it. It is empty if the
// program accepts everything or the complaint is unclear.
func Refusal(status int, output, complaint string) string {
	if ignored := ignoredIn(output); ignored != "" {
		return "would start, but " + inOneLine(ignored)
	}
	if refused := refusedFor(status, complaint); refused != "" {
		return "would not start: " + refused
	}
	return ""
}

// refusedFor returns what a program does not accept; empty if it accepts everything or the complaint is unclear.
func refusedFor(status int, complaint string) string {
	switch status {
	case 1, 2, 255: // an error, a flag or a panic, klog.Fatal
	default:
		return ""
	}
	if strings.Contains(complaint, missingPath) || strings.Contains(complaint, peerGate) || sandboxComplaints.MatchString(complaint) {
		return ""
	}
	complaint, _, _ = strings.Cut(complaint, ", path: &") // the kubelet's whole configuration
	return inOneLine(complaint)
}

// inOneLine returns a text in one line of at most maxComplaint bytes.
func inOneLine(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxComplaint {
		text = strings.ToValidUTF8(text[:maxComplaint], "") + " ..."
	}
	return text
}

// Programs that start although nothing reads a part of their configuration say so only in their log: kubelet and
// kube-proxy (cmd/kubelet, "lenient decoding"), kube-apiserver of its audit policy, and containerd.
var (
	klogError  = regexp.MustCompile(` err=("(?:[^"\\]|\\.)*")`)
	lenient    = regexp.MustCompile(`lenient decoding`)
	unknownKey = regexp.MustCompile(`msg="Ignoring unknown key in TOML.*\bkey=("(?:[^"\\]|\\.)*"|\S+)(?: plugin=(\S+))?`)
	tomlStart  = regexp.MustCompile(`(?m)^version = \d+$`)
	logLine    = regexp.MustCompile(`(?m)^time=.*\n`)
)

// ignoredIn returns what of its configuration a rehearsed program does not read; empty for nothing.
func ignoredIn(output string) string {
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if m := unknownKey.FindStringSubmatch(line); m != nil {
			key := m[1]
			if text, err := strconv.Unquote(key); err == nil {
				key = strings.ReplaceAll(text, " ", ".")
			}
			if m[2] != "" {
				key = fmt.Sprintf("plugins.%q.%s", m[2], key)
			}
			return "nothing reads its key " + key
		}
		if lenient.MatchString(line) {
			return "nothing reads a part of its configuration: " + lenientComplaint(line)
		}
	}
	return ignoredByContainerd(output)
}

// lenientComplaint returns the error in a line of klog's text or JSON format.
func lenientComplaint(line string) string {
	var entry struct{ Msg, Err string }
	if json.Unmarshal([]byte(line), &entry) == nil {
		return strings.TrimSpace(entry.Msg + " " + entry.Err)
	}
	if m := klogError.FindStringSubmatch(line); m != nil {
		if text, err := strconv.Unquote(m[1]); err == nil {
			return text
		}
	}
	_, text, _ := strings.Cut(line, "] ")
	return text
}

// unprinted are the options that runc's shim reads and that "config default" does not print
// (containerd's api/types/runc/options/oci.proto).
var unprinted = []string{"NoPivotRoot", "TaskApiAddress", "TaskApiVersion"}

// ignoredByContainerd compares the configuration that containerd has read with the one that it has by itself, which
// it prints one after the other: it keeps tables of plugins that it does not have, and passes options of runc on
// that runc does not have.
func ignoredByContainerd(output string) string {
	output = logLine.ReplaceAllString(output, "")
	starts := tomlStart.FindAllStringIndex(output, -1)
	if len(starts) != 2 {
		return ""
	}
	var has, own map[string]any
	if toml.Unmarshal([]byte(output[starts[0][0]:starts[1][0]]), &has) != nil || toml.Unmarshal([]byte(output[starts[1][0]:]), &own) != nil {
		return ""
	}
	for _, plugin := range slices.Sorted(maps.Keys(within(has, "plugins"))) {
		if _, known := within(own, "plugins")[plugin]; !known {
			return fmt.Sprintf("nothing reads its table plugins.%q", plugin)
		}
	}
	handlers := []string{"plugins", "io.containerd.cri.v1.runtime", "containerd", "runtimes"}
	runc := within(own, append(handlers, "runc", "options")...)
	for _, name := range slices.Sorted(maps.Keys(within(has, handlers...))) {
		if within(has, append(handlers, name)...)["runtime_type"] != runcRuntime || len(runc) == 0 {
			continue
		}
		for _, option := range slices.Sorted(maps.Keys(within(has, append(handlers, name, "options")...))) {
			if _, known := runc[option]; !known && !slices.Contains(unprinted, option) {
				return fmt.Sprintf("nothing reads the option %s of its runtime %s", option, name)
			}
		}
	}
	return ""
}

// within returns the table at a path; nil if there is no such table.
func within(table map[string]any, path ...string) map[string]any {
	for _, name := range path {
		table, _ = table[name].(map[string]any)
	}
	return table
}
