package plans

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	labec2 "github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

//go:embed class.tf
var classConfiguration string

// Class is the subcommand class, with its arguments: many clusters in one account, each applied, planned and destroyed by a
// Terraform of its own, all at once. The account limits the rate of calls as AWS does. Each cluster is a network, keys and
// three machines that cost little, without programs of Kubernetes. It needs root, and starts this program again in network
// namespaces of its own.
func Class(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("bench class", flag.ContinueOnError)
	o := options{Log: io.Discard}
	many := flags.Int("clusters", 30, "how many clusters")
	flags.StringVar(&o.Mirror, "mirror", "", "directory of the artifact mirror, which is not used")
	flags.StringVar(&o.Provider, "provider", "", "the provider's program; built when empty")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *many < 1 || *many > 100 {
		return fmt.Errorf("-clusters %d: want 1 to 100", *many)
	}
	return o.inNamespaces(ctx, func(dir string) error {
		_, err := measureClass(ctx, dir, o, *many, os.Stdout)
		return err
	})
}

// phase is what one command of all Terraforms has cost.
type phase struct {
	Name      string
	Longest   time.Duration  // until the last one ended
	First     time.Duration  // until the first one ended
	CPU       time.Duration  // of all processes of the provider
	Memory    int64          // bytes, of the largest of them
	Calls     map[string]int // by service
	Throttled map[string]int // calls that the account refused for their rate, by action; the provider repeats them
}

// class is clusters in one account.
type class struct {
	site      *site
	usage     string // file to which the provider's processes add what they used
	all       []*workspace.Workspace
	throttled throttles
}

// throttles counts calls that an account refused for their rate.
type throttles struct {
	slog.Handler

	mu       sync.Mutex
	byAction map[string]int
}

// Handle implements slog.Handler for the account's log of calls.
func (h *throttles) Handle(_ context.Context, r slog.Record) error {
	var action, code string
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "action":
			action = a.Value.String()
		case "code":
			code = a.Value.String()
		}
		return true
	})
	if code == "RequestLimitExceeded" || strings.HasPrefix(code, "Throttling") {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.byAction[action]++
	}
	return nil
}

// Enabled implements slog.Handler.
func (h *throttles) Enabled(context.Context, slog.Level) bool { return true }

func (h *throttles) take() map[string]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := h.byAction
	h.byAction = map[string]int{}
	return taken
}

// newClass makes an account with room for clusters, and a working directory for each.
func newClass(ctx context.Context, dir string, o options, many int) (*class, error) {
	c := &class{usage: filepath.Join(dir, "usage"), throttled: throttles{byAction: map[string]int{}}}
	var api string
	var err error
	c.site, api, err = serveSite(ctx, dir, func(config *cloud.Config) {
		// What a teacher asks AWS for: see the guide on IAM.
		config.Quotas = labec2.Quotas{VCPUs: 6 * many, Addresses: many, VPCs: many + 1}
		config.Calls = slog.New(&c.throttled)
	})
	if err != nil {
		return nil, err
	}
	key := filepath.Join(dir, "key")
	self, err := os.Executable()
	if err = errors.Join(err, workspace.SSHKey(key)); err != nil {
		return nil, err
	}
	env := append(environment(dir, api, key), usageVariable+"="+c.usage, providerVariable+"="+o.Provider)
	log := workspace.InTurn(o.Log)
	for n := range many {
		ws, err := workspace.New(workspace.Options{Dir: filepath.Join(dir, fmt.Sprintf("student-%d", n)), CLI: o.CLI, Provider: self, Log: log, Env: env})
		if err != nil {
			return nil, err
		}
		if err := errors.Join(ws.WriteFile("main.tf", classConfiguration), ws.WriteFile("terraform.tfvars", fmt.Sprintf("cluster = \"student-%d\"\n", n))); err != nil {
			return nil, err
		}
		c.all = append(c.all, ws)
	}
	return c, nil
}

// measureClass applies, plans and destroys all clusters, each at once, and prints and returns what that has cost.
func measureClass(ctx context.Context, dir string, o options, many int, w io.Writer) ([]phase, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := newClass(ctx, dir, o, many)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.site.fleet.Close() }()
	for _, ws := range c.all {
		if err := ws.Init(ctx); err != nil {
			return nil, err
		}
	}
	var all []phase
	for _, step := range []struct {
		name string
		run  func(*workspace.Workspace) error
	}{
		{"apply", func(ws *workspace.Workspace) error { _, err := ws.Apply(ctx); return err }},
		{"plan", func(ws *workspace.Workspace) error {
			changes, text, err := ws.Plan(ctx)
			if changes && err == nil {
				err = fmt.Errorf("the plan after the apply is not empty:\n%s", text)
			}
			return err
		}},
		{"destroy", func(ws *workspace.Workspace) error { _, err := ws.Destroy(ctx); return err }},
	} {
		_, _ = fmt.Fprintf(w, "%s of %d clusters\n", step.name, many)
		p, err := c.atOnce(step.run)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", step.name, err)
		}
		p.Name = step.name
		all = append(all, p)
	}
	if left := c.site.cloud.Overview(); left.Total > 0 {
		return nil, fmt.Errorf("left in the account: %+v", left)
	}
	return all, printPhases(w, all)
}

// atOnce runs a command of all Terraforms.
func (c *class) atOnce(run func(*workspace.Workspace) error) (phase, error) {
	if err := os.Remove(c.usage); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return phase{}, err
	}
	c.site.takeCalls()
	c.throttled.take()
	began := time.Now()
	took, errs := make([]time.Duration, len(c.all)), make([]error, len(c.all))
	var all sync.WaitGroup
	for n, ws := range c.all {
		all.Go(func() {
			errs[n] = run(ws)
			took[n] = time.Since(began)
		})
	}
	all.Wait()
	p := phase{Longest: slices.Max(took), First: slices.Min(took), Calls: c.site.takeCalls(), Throttled: c.throttled.take()}
	if err := errors.Join(errs...); err != nil {
		return p, err
	}
	u, _, err := used(c.usage)
	p.CPU, p.Memory = u.CPU, u.Memory
	return p, err
}

func printPhases(w io.Writer, all []phase) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "command\tfirst s\tlast s\tCPU s\tMB\tEC2\tSSM\tSTS\trefused for their rate")
	for _, p := range all {
		var refused []string
		for _, action := range slices.Sorted(maps.Keys(p.Throttled)) {
			refused = append(refused, fmt.Sprintf("%s %d", action, p.Throttled[action]))
		}
		_, _ = fmt.Fprintf(t, "%s\t%.0f\t%.0f\t%.0f\t%d\t%d\t%d\t%d\t%s\n", p.Name, p.First.Seconds(), p.Longest.Seconds(), p.CPU.Seconds(), p.Memory>>20, p.Calls["ec2"], p.Calls["ssm"], p.Calls["sts"], strings.Join(refused, ", "))
	}
	return t.Flush()
}
