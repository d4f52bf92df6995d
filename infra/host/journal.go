package host

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// lineLimit is how many characters of a journal's line are shown.
const lineLimit = 1000

// Journal returns the last lines of a unit's journal that are not merely informational, or the last
// lines of all if there are none, shortened to time, program and message, and made fit to be shown. It is
// meant for errors: instead of failing it returns why there is nothing to show, and it asks even if ctx
// has just ended.
func Journal(ctx context.Context, r Runner, unit string, lines int) string {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience.Of(ctx, 10*time.Second))
	defer cancel()
	out, err := r.Run(ctx, remote.Command{Sudo: true, Script: fmt.Sprintf(
		"LC_ALL=C journalctl --no-pager --quiet --no-hostname -o short-iso -n %d -u %s", 20*lines, quote(unit))})
	if err != nil {
		return fmt.Sprintf("(the journal of %s cannot be read: %v)", unit, err)
	}
	return foreign.Lines(tail(strings.TrimSpace(string(out.Stdout)), lines), lineLimit)
}

const (
	// saidLines is how many lines of a journal are searched for the last error: a Go program that panics
	// prints its stacks after it.
	saidLines = 200
	// saidBytes bounds what is read of one journal.
	saidBytes = 64 << 10
)

// unitEnds matches the messages in which systemd says that a unit has failed, with its result in the field UNIT_RESULT,
// or that it has ended well (SD_MESSAGE_UNIT_FAILURE_RESULT and SD_MESSAGE_UNIT_SUCCESS in systemd's sd-messages.h).
// The property Result loses the result at the next start.
const unitEnds = "MESSAGE_ID=d9b373ed55a64feb8242e02dbe79a49c MESSAGE_ID=7ad2d189f7e94e70a38c781354912448"

// ending is how a unit has last ended, as its journal has it.
type ending struct {
	result string // in systemd's words; empty if the unit has not failed in this boot
	said   string // the last error of its processes
}

// endings returns how units have last ended. If the machine does not answer, it returns none.
func endings(ctx context.Context, r Runner, units []string) []ending {
	var script strings.Builder
	script.WriteString("LC_ALL=C\nexport LC_ALL\n")
	for _, name := range units {
		fmt.Fprintf(&script, "journalctl --no-pager --quiet -b -o cat --output-fields=UNIT_RESULT -n 1 _PID=1 %s %s | tr -d '\\000'; printf '\\000'\n",
			unitEnds, quote("UNIT="+name))
		// Only what the unit's own processes say, and not what systemd says of them.
		fmt.Fprintf(&script, "journalctl --no-pager --quiet --all -o cat -n %d %s | tail -c %d | tr -d '\\000'; printf '\\000'\n",
			saidLines, quote("_SYSTEMD_UNIT="+name), saidBytes)
	}
	out, err := r.Run(ctx, remote.Command{Script: script.String(), Sudo: true})
	if err != nil {
		return nil
	}
	var found []ending
	for answer := range slices.Chunk(strings.Split(strings.TrimSuffix(string(out.Stdout), "\x00"), "\x00"), 2) {
		if len(answer) == 2 {
			found = append(found, ending{result: foreign.Line(strings.TrimSpace(answer[0]), maxSaid), said: lastError(answer[1])})
		}
	}
	return found
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
