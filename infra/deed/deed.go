// Package deed is the list of deeds: all that is done on machines besides
// bringing them to a wanted state, which package host does by observing,
// comparing and applying. A deed has a name, a script beside this file that is
// called by it, and a function; it may be done again at any time, also after an
// interruption, and leaves the machine as doing it once does. Whoever wants
// something new done on a machine adds a deed here, or a state.
//
// What may not enter: states (package host), when a deed is due (packages
// rollout, maintenance and aws), waiting for what comes of it (package fleet),
// and Kubernetes: units and paths are given by the caller.
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

// deed is the name of a script, without its ending. The script says in its
// first lines what it does and which arguments it takes.
type deed string

// The deeds.
const (
	stop           deed = "stop"
	start          deed = "start"
	restart        deed = "restart"
	restartRunning deed = "restart-running"
	kill           deed = "kill"
	hold           deed = "hold"
	wipe           deed = "wipe"
	endPods        deed = "end-pods"
	rehearse       deed = "rehearse"
	prepareHostKey deed = "prepare-host-key"
	switchHostKey  deed = "switch-host-key"
	growRoot       deed = "grow-root"
)

//go:embed *.sh
var scripts embed.FS

// script is the deed's script, given its arguments.
func (d deed) script(args ...string) string {
	text, err := scripts.ReadFile(string(d) + ".sh")
	if err != nil {
		panic(err) // TestScripts knows of each
	}
	return "set -- " + quoted(args...) + "\n" + string(text)
}

// do runs the deed's script as root.
func (d deed) do(ctx context.Context, r Runner, args ...string) error {
	_, err := run(ctx, r, d.script(args...), nil)
	return err
}

// run runs a script as root and returns its answer.
func run(ctx context.Context, r Runner, script string, stdin io.Reader) (string, error) {
	out, err := r.Run(ctx, remote.Command{Script: script, Stdin: stdin, Sudo: true})
	return string(out.Stdout), err
}

// quoted makes each of the words one word of a POSIX shell.
func quoted(words ...string) string {
	out := make([]string, len(words))
	for i, w := range words {
		out[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
	}
	return strings.Join(out, " ")
}
