package host

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// lineLimit is how many characters of a journal's line are shown.
const lineLimit = 1000

// Journal returns the last lines of a unit's journal that are not merely informational, or the last
// lines of all if there are none, shortened to time, program and message, and made fit to be shown. It is
// meant for errors: instead of failing it returns why there is nothing to show, and it asks even if ctx
// has just ended.
func Journal(ctx context.Context, r Runner, unit string, lines int) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	out, err := r.Run(ctx, remote.Command{Sudo: true, Script: fmt.Sprintf(
		"LC_ALL=C journalctl --no-pager --quiet --no-hostname -o short-iso -n %d -u %s", 20*lines, quote(unit))})
	if err != nil {
		return fmt.Sprintf("(the journal of %s cannot be read: %v)", unit, err)
	}
	return foreign.Lines(tail(strings.TrimSpace(string(out.Stdout)), lines), lineLimit)
}

var (
	// journalHead is the start of a line of journalctl -o short-iso: the date, the time, the zone,
	// the program and its process.
	journalHead = regexp.MustCompile(`^\d{4}-\d\d-\d\dT(\d\d:\d\d:\d\d)[+-][\d:]+ ([^ \[]+)\[\d+\]: `)
	// klogHead is the start of a line that a Kubernetes program logs: severity and date, time,
	// thread, source.
	klogHead = regexp.MustCompile(`: [IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ [\w.-]+:\d+\] `)
	// informational matches informational lines of klog, zap (etcd) and logfmt (containerd).
	informational = regexp.MustCompile(`: I\d{4} \d\d:\d\d:\d\d\.|"level":"info"| level=info `)
	// warning matches warnings, which crowd out the reason a program exited.
	warning = regexp.MustCompile(`: W\d{4} \d\d:\d\d:\d\d\.|"level":"warn"| level=warning `)
)

// tail returns the lines of a journal that say most about a failure.
func tail(journal string, lines int) string {
	all := strings.Split(journal, "\n")
	last := func(in []string) []string { return in[max(0, len(in)-lines):] }
	matter := slices.DeleteFunc(slices.Clone(all), informational.MatchString)
	if serious := slices.DeleteFunc(slices.Clone(last(matter)), warning.MatchString); len(serious) > 0 {
		matter = serious
	}
	if len(matter) == 0 {
		matter = all
	}
	matter = slices.Clone(last(matter))
	for i, line := range matter {
		line = journalHead.ReplaceAllString(line, "$1 $2: ")
		matter[i] = klogHead.ReplaceAllString(line, ": ")
	}
	return strings.Join(matter, "\n")
}
