// Package deed is the list of deeds: everything done on machines besides bringing them to a wanted
// state, which package host does. A deed has a name, a script of that name in this directory, and a
// function. Each deed is idempotent: repeating it, also after an interruption, has the same result
// as doing it once. A new action on a machine is either a new deed here or a state.
//
// Hold is the exception: it is an error while another unit of the machine is held. The first holder
// relies on its unit standing still, and a second hold would let it continue in between. If a
// holder is interrupted, its unit continues by itself.
//
// A snapshot that is taken again is a newer one. The earlier one stays as it is.
//
// What may not enter: states (package host), when a deed is due (packages rollout, maintenance and
// aws), waiting for its result (package fleet), and Kubernetes: the caller gives units and paths.
// Only end-pods.sh and ask-pods-to-end.sh know what containerd, the bridge plugin and kube-proxy
// leave on a worker, by name.
package deed

import (
	"context"
	"embed"
	"io"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// Runner runs commands on the machine. [*remote.Machine] is one.
type Runner interface {
	Run(ctx context.Context, cmd remote.Command) (remote.Output, error)
}

var _ Runner = (*remote.Machine)(nil)

// deed is the name of a script, without ".sh". The script's first lines say what it does and which
// arguments it takes.
type deed string

// The deeds.
const (
	stop             deed = "stop"
	start            deed = "start"
	restart          deed = "restart"
	restartRunning   deed = "restart-running"
	kill             deed = "kill"
	noteStop         deed = "note-stop"
	forgetStop       deed = "forget-stop"
	hold             deed = "hold"
	release          deed = "release"
	wipe             deed = "wipe"
	endPods          deed = "end-pods"
	askPodsToEnd     deed = "ask-pods-to-end"
	rehearse         deed = "rehearse"
	prepareHostKey   deed = "prepare-host-key"
	switchHostKey    deed = "switch-host-key"
	growRoot         deed = "grow-root"
	snapshot         deed = "snapshot"
	findSnapshot     deed = "find-snapshot"
	makeFromSnapshot deed = "make-from-snapshot"
	makeFromMember   deed = "make-from-member"
	useRestored      deed = "use-restored"
	endRestore       deed = "end-restore"
	setAside         deed = "set-aside"

	dataVolume        deed = "data-volume"
	inspectDataVolume deed = "inspect-data-volume"
	growDataVolume    deed = "grow-data-volume"
	startDataVolume   deed = "start-data-volume"
)

//go:embed *.sh
var scripts embed.FS

// script returns the deed's script with its arguments set.
func (d deed) script(args ...string) string {
	text, err := scripts.ReadFile(string(d) + ".sh")
	if err != nil {
		panic(err) // TestScripts opens every script
	}
	return "set -- " + quoted(args...) + "\n" + string(text)
}

// scriptWith is script with functions of a shell that the script calls.
func (d deed) scriptWith(functions string, args ...string) string {
	own := d.script(args...)
	first, rest, _ := strings.Cut(own, "\n")
	return first + "\n" + functions + "\n" + rest
}

// do runs the deed's script as root.
func (d deed) do(ctx context.Context, r Runner, args ...string) error {
	_, err := d.run(ctx, r, d.script(args...), nil)
	return err
}

// run runs a script of the deed as root and returns its standard output.
func (d deed) run(ctx context.Context, r Runner, script string, stdin io.Reader) (string, error) {
	out, err := r.Run(ctx, remote.Command{Name: string(d), Script: script, Stdin: stdin, Sudo: true})
	return string(out.Stdout), err
}

// quoted quotes each word for a POSIX shell.
func quoted(words ...string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(out, " ")
}
