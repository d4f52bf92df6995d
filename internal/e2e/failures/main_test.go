// Package failures_test causes the most common failures, reads what Terraform prints about them as
// a person would, and compares it with the troubleshooting guide, which shows every message as it
// is printed.
//
// After a message was changed on purpose, update the guide with
//
//	go test -count=1 ./internal/e2e/failures -update
package failures_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

var (
	suite  *harness.Suite
	update = flag.Bool("update", false, "write the messages into the guide")
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(harness.Main(m, func(s *harness.Suite) { suite = s }))
}

// small is the example with one API server on three members of etcd and one worker.
const small = `
resource "k8s_lb" "this" {
  controllers = [k8s_machine.controller[0].host]
}

resource "k8s_control_plane" "this" {
  hosts = [k8s_machine.controller[0].host]
}
`

// changes replaces the resources whose apply is to fail by changed ones.
const changes = `
resource "k8s_control_plane" "this" {
  extra_args = { kube_apiserver = { event-ttl = "31m" } }
}

resource "k8s_worker_pool" "this" {
  labels = { changed = "yes" }
}
`

// world is the cluster under test.
type world struct {
	*harness.Cluster
	// quiet is how long a plan takes without failures: the time that this computer needs to look at
	// everything once.
	quiet time.Duration
}

// within is the time limit of a failing command: the time it has to wait by design, plus a minute,
// or on a slow computer plus five times the duration of a plan, since apply looks at everything
// before and after planning and begins its work. The timeout of a resource is half an hour.
func (w *world) within(f failure) time.Duration { return f.waits + max(time.Minute, 5*w.quiet) }

// well checks that a plan is empty, and measures how long it takes.
func (w *world) well(t *testing.T) {
	t.Helper()
	start := time.Now()
	w.NoChanges(t)
	w.quiet = time.Since(start)
}

// failure is one thing that goes wrong.
type failure struct {
	title string // of its section in the guide
	// with causes the failure, and undoes it in a cleanup of t.
	with func(t *testing.T, w *world)
	args []string
	// command is what is run: apply by default, or plan.
	command string
	summary string   // of the diagnostic
	says    []string // what the message must contain, wherever lines are broken
	// waits is how long the command has to wait by design before it can fail, such as ten seconds
	// for a machine that does not answer; see world.within.
	waits time.Duration
	// long says that only parts of soak with K8S_E2E_LONG=1 run it.
	long bool
	// backsOff says that the kubelet backs off from a pod before the command ends.
	backsOff bool
}

func TestFailures(t *testing.T) {
	suite.MovableClock(t)
	w := &world{Cluster: suite.Cluster(suite.Workspace(t, "failures", suite.CLI, filepath.Join(suite.Root, "examples", "ha-cluster")))}
	for name, content := range map[string]string{"small_override.tf": small, "small.auto.tfvars": "workers = 1\n"} {
		if err := w.WS.WriteFile(name, content); err != nil {
			t.Fatal(err)
		}
	}
	w.Apply(t)
	w.Learn(t)
	w.well(t)
	whole := true
	for _, f := range failures {
		t.Run(f.title, func(t *testing.T) {
			if f.long {
				harness.Long(t)
			}
			if !whole {
				t.Skip("the step before left the cluster damaged")
			}
			whole = false
			t.Run("failed", func(t *testing.T) { w.fail(t, f) })
			out, err := w.WS.Apply(t.Context())
			if err != nil {
				t.Fatalf("it is not as before: %v", err)
			}
			if !strings.Contains(out, "No changes. ") { // which is what an empty plan says
				w.well(t)
			}
			whole = true
		})
	}
}

// fail causes a failure and compares what is printed.
func (w *world) fail(t *testing.T, f failure) {
	env := w.WS.Env
	t.Cleanup(func() { w.WS.Env = env })
	f.with(t, w)
	within := w.within(f)
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	start := time.Now()
	var out string
	var err error
	if f.command == "plan" {
		_, out, err = w.WS.Plan(ctx, f.args...)
	} else {
		out, err = w.WS.Apply(ctx, f.args...)
	}
	var failed *workspace.Error
	if errors.As(err, &failed) {
		out = failed.Stdout + failed.Stderr
	}
	t.Logf("it took %s to say so, of %s: a plan takes %s", time.Since(start).Round(100*time.Millisecond), within.Round(100*time.Millisecond), w.quiet.Round(100*time.Millisecond))
	if ctx.Err() != nil {
		t.Fatalf("it did not end within %s:\n%s", within, out)
	}
	if f.backsOff {
		w.toldInTime(t, start, time.Now())
	}
	said := diagnostic(out, f.summary)
	if said == "" {
		t.Fatalf("nothing was said under %q:\n%s", f.summary, out)
	}
	harness.Says(t, said, f.says...)
	if strings.Contains(said, "PRIVATE KEY") {
		t.Errorf("a private key is printed:\n%s", said)
	}
	compareGuide(t, f.title, said)
}

// toldInTime checks that a command ended within half a minute of the first CrashLoopBackOff or
// ImagePullBackOff after its start, which the kubelet records as an event. The time that Terraform
// needs before and after is added as in world.within.
func (w *world) toldInTime(t *testing.T, began, ended time.Time) {
	t.Helper()
	var events struct {
		Items []struct {
			FirstTimestamp time.Time `json:"firstTimestamp"` // whole seconds
		} `json:"items"`
	}
	out := w.Kubectl(t, "--namespace=default", "get", "events", "--field-selector=reason=BackOff", "--output=json")
	if err := json.Unmarshal([]byte(out), &events); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	first := ended
	for _, e := range events.Items {
		if e.FirstTimestamp.After(began) && e.FirstTimestamp.Before(first) {
			first = e.FirstTimestamp
		}
	}
	if first.Equal(ended) {
		t.Errorf("the kubelet has not backed off: %s", out)
	}
	took := ended.Sub(first)
	t.Logf("it was told %s after the first back-off", took.Round(time.Second))
	if limit := 30*time.Second + 5*w.quiet; took > limit {
		t.Errorf("it was told %s after the first back-off, want at most %s", took, limit)
	}
}

// diagnostic returns what was printed under a summary, without the frame.
func diagnostic(out, summary string) string {
	out = regexp.MustCompile(`(?m)^[╷│╵] ?`).ReplaceAllString(out, "")
	i := strings.Index(out, ": "+summary)
	if i < 0 {
		return ""
	}
	i = strings.LastIndex(out[:i], "\n") + 1
	said := out[i:]
	if end := regexp.MustCompile(`\n(Error|Warning): |\n\nPlan: |\nReleasing state lock`).FindStringIndex(said); end != nil {
		said = said[:end[0]]
	}
	return strings.TrimSpace(said)
}

// passing matches parts of messages that differ between runs and mean nothing.
var passing = []struct {
	shape *regexp.Regexp
	to    string
}{
	{regexp.MustCompile(`last lines of the journal of (\S+): .* next: `), "last lines of the journal of $1: ... next: "},
	{regexp.MustCompile(`on (\w+\.tf) line \d+, in (resource "\w+" "\w+"): \d+: `), "on $1, in $2: "},
	{regexp.MustCompile(`\b\d+\.\d+\.\d+\.\d+\b`), "<address>"},
	{regexp.MustCompile(`SHA256:[A-Za-z0-9+/]+`), "SHA256:<fingerprint>"},
	{regexp.MustCompile(`\b[0-9a-f]{64}\b`), "<sha256>"},
	{regexp.MustCompile(`\b[0-9a-f]{8}-[0-9a-f-]{27}\b`), "<request>"},
	{regexp.MustCompile(`\b(i|ami)-[0-9a-f]+\b`), "<id>"},
	{regexp.MustCompile(`\b(\d+h)?(\d+m)?\d+s (ahead|behind)`), "<time> $3"},
	{regexp.MustCompile(`process \d+ of`), "process <pid> of"},
	{regexp.MustCompile(`EC2: Describe\w+`), "EC2: Describe..."}, // several are called in parallel
	{regexp.MustCompile(`\b(\w+)-[0-9a-f]{6,10}-[0-9a-z]{5}\b`), "$1-<pod>"},
	{regexp.MustCompile(`restarted \d+ times`), "restarted <n> times"},
	{regexp.MustCompile(`after \d+ ms`), "after <time>"},
	{regexp.MustCompile(`passed \d+ returned \d+`), "passed <n> returned <n>"},
	{regexp.MustCompile(`ImagePullBackOff: Back-off pulling image "[^"]+": ErrImagePull`), "ErrImagePull"}, // the kubelet says one or the other, in turn
	{regexp.MustCompile(`\d+ of (\d+) KiB and \d+ inodes`), "<n> of $1 KiB and <n> inodes"},
}

func normal(text string) string {
	text = harness.Flat(text)
	for _, p := range passing {
		text = p.shape.ReplaceAllString(text, p.to)
	}
	return text
}

// compareGuide checks that a section of the guide shows the message.
func compareGuide(t *testing.T, title, said string) {
	t.Helper()
	path := filepath.Join(suite.Root, "templates", "guides", "troubleshooting.md")
	guide, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)(\n## " + regexp.QuoteMeta(title) + "\n.*?```text\n)(.*?)(\n```)")
	at := block.FindSubmatchIndex(guide)
	if at == nil {
		t.Errorf("the guide has no section %q with a message", title)
		return
	}
	shown := string(guide[at[4]:at[5]])
	if normal(shown) == normal(said) {
		return
	}
	if !*update {
		t.Errorf("the guide shows under %q:\n%s\n\nwhat is printed is:\n%s", title, shown, said)
		return
	}
	if err := os.WriteFile(path, []byte(fmt.Sprintf("%s%s%s", guide[:at[4]], said, guide[at[5]:])), 0o644); err != nil {
		t.Error(err)
	}
}
