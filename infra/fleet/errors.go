package fleet

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// StepError says which step failed on which machine, the last condition seen, and what to look at
// next.
type StepError struct {
	Machine string
	Step    string            // "wait for the API server", "drain"
	Err     error             // the last condition seen
	Unit    string            // the systemd unit concerned, if any
	Causes  []finding.Finding // the cause as found on the machine
	Journal string            // the end of its journal, redacted
	Next    string            // the command to run next
}

func (e *StepError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "machine %s: %s: %v", e.Machine, e.Step, e.Err)
	for _, c := range e.Causes {
		b.WriteString("\n" + c.String())
	}
	if j := strings.TrimSpace(e.Journal); j != "" {
		fmt.Fprintf(&b, "\nlast lines of the journal of %s:\n%s", e.Unit, j)
	}
	if e.Next != "" {
		fmt.Fprintf(&b, "\nnext: %s", e.Next)
	}
	return b.String()
}

// Unwrap returns the last condition seen.
func (e *StepError) Unwrap() error { return e.Err }

// GuardError refuses a step that would break what works. The refused step has changed nothing.
type GuardError struct {
	Refused string // the request: "remove etcd member controller-2"
	Reason  string // "2 of 3 voters are healthy, and ..."
	Advice  string // what to do instead
}

func (e *GuardError) Error() string {
	s := fmt.Sprintf("refusing to %s: %s", e.Refused, e.Reason)
	if e.Advice != "" {
		s += "; " + e.Advice
	}
	return s
}

// SkippedError lists the machines that could not be reached and were left as they are. The other
// machines have been brought to the wanted state.
type SkippedError struct {
	Machines map[string]error
}

func (e *SkippedError) Error() string {
	names := slices.Sorted(maps.Keys(e.Machines))
	words := make([]string, len(names))
	for i, n := range names {
		words[i] = e.Machines[n].Error()
	}
	return fmt.Sprintf("left as they are, because they could not be reached: %s; apply again when they answer:\n%s",
		strings.Join(names, ", "), strings.Join(words, "\n"))
}

// Unwrap returns the errors of the machines.
func (e *SkippedError) Unwrap() []error {
	var out []error
	for _, n := range slices.Sorted(maps.Keys(e.Machines)) {
		out = append(out, e.Machines[n])
	}
	return out
}

// Unreachable reports whether err means that a machine cannot be connected to, as opposed to one
// that answers and has a problem.
func Unreachable(err error) bool {
	var gone *remote.UnreachableError
	return errors.As(err, &gone)
}

// List joins names for people: "a, b, c"; "none" if there are none.
func List(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// CorruptAdvice is what ends the alarm CORRUPT of etcd. The data of the wrong member go first, so that
// it serves no reads when the alarm has ended.
const CorruptAdvice = "find the member that differs (etcdctl endpoint hashkv --cluster), stop etcd on its machine and delete /var/lib/etcd/member there, run etcdctl alarm disarm on another " +
	"machine, then apply again: the member joins again with the data of the others. If no two members agree, restore a snapshot"

// Replaced reports whether another machine answers in place of the expected one.
func Replaced(err error) bool {
	var foreign *remote.HostKeyError
	return errors.As(err, &foreign)
}
