package plans

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
)

// figures are what one plan has cost.
type figures struct {
	Plan      string // "empty", "one damaged", "one setting"
	Workers   int
	Machines  int
	Wall      time.Duration
	CPU       time.Duration // of the provider's processes
	Memory    int64         // bytes, of the largest of them
	Processes int
	Log       int64 // bytes that they have logged
	Trips     int64 // scripts run over SSH
	Shakes    int64 // SSH handshakes
	Tunnels   int64 // connections through SSH
	Bytes     int64 // over SSH, both directions
	EC2, SSM  int   // calls
	STS       int
	State     int64 // bytes of the state file
	Text      int   // bytes that Terraform prints
}

// measure grows the cluster to a number of workers and measures a plan without changes, one with a damaged
// machine, and one with another setting of every kubelet.
func (c *cluster) measure(ctx context.Context, workers int) ([]figures, error) {
	if err := c.grow(ctx, workers); err != nil {
		return nil, fmt.Errorf("growing to %d workers: %w", workers, err)
	}
	empty, text, err := c.plan(ctx, "empty", workers)
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, text)
	}
	if !strings.Contains(text, "No changes.") {
		return nil, fmt.Errorf("the plan for %d workers is not empty:\n%s", workers, text)
	}
	machine, file := fmt.Sprintf("worker-%d", workers/2), component.KubeletConfigPath
	if !c.Kubernetes {
		machine, file = "lb-0", component.HAProxyConfig
	}
	undo, err := c.damage(machine, file)
	if err != nil {
		return nil, err
	}
	damaged, text, err := c.plan(ctx, "one damaged", workers)
	if err = errors.Join(err, undo()); err != nil {
		return nil, err
	}
	if named := drifting(text); !slices.Equal(named, []string{machine}) {
		return nil, fmt.Errorf("%s on %s is damaged, and the plan for %d workers names %q:\n%s", file, machine, workers, named, text)
	}
	if !c.Kubernetes {
		return []figures{empty, damaged}, nil
	}
	if err := c.ws.WriteFile("setting_override.tf", "resource \"k8s_worker_pool\" \"this\" {\n  kubelet_config = { maxPods = 120 }\n}\n"); err != nil {
		return nil, err
	}
	setting, text, err := c.plan(ctx, "one setting", workers)
	if err = errors.Join(err, os.Remove(filepath.Join(c.ws.Dir, "setting_override.tf"))); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, text)
	}
	if !strings.Contains(text, component.KubeletConfigPath) {
		return nil, fmt.Errorf("another setting of every kubelet, and the plan for %d workers does not name %s:\n%s", workers, component.KubeletConfigPath, text)
	}
	return []figures{empty, damaged, setting}, nil
}

// plan plans, and returns the plan and what it has cost.
func (c *cluster) plan(ctx context.Context, what string, workers int) (figures, string, error) {
	if err := os.Remove(c.usage); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return figures{}, "", err
	}
	if c.Profile != "" {
		c.ws.Env = append(c.ws.Env, profileVariable+"="+c.Profile)
	}
	c.site.fleet.Reset()
	c.site.takeCalls()
	began := time.Now()
	_, text, err := c.ws.Plan(ctx)
	f := figures{Plan: what, Workers: workers, Machines: len(c.site.all()), Wall: time.Since(began)}
	if err != nil {
		return f, text, err
	}
	f.Text = len(text)
	if state, err := os.Stat(filepath.Join(c.ws.Dir, "terraform.tfstate")); err == nil {
		f.State = state.Size()
	}
	n := &c.site.fleet.Counts
	f.Trips, f.Shakes, f.Tunnels, f.Bytes = n.Commands.Load(), n.Handshakes.Load(), n.Tunnels.Load(), n.Bytes.Load()
	calls := c.site.takeCalls()
	f.EC2, f.SSM, f.STS = calls["ec2"], calls["ssm"], calls["sts"]
	if c.Profile == "" {
		var u usage
		if u, f.Processes, err = used(c.usage); err != nil {
			return f, text, err
		}
		f.CPU, f.Memory, f.Log = u.CPU, u.Memory, u.Log
	}
	return f, text, nil
}

// driftLine is a line of a plan with which a machine in a drift map begins:
//
//   - "worker-3" = "file /etc/...: missing" -> null
//   - "worker-4" = <<-EOT
var driftLine = regexp.MustCompile(`(?m)^\s+- "([^"]+)"\s+= (?:.* -> null|<<-EOT)$`)

// drifting returns the subjects of all drift in a plan, sorted.
func drifting(plan string) []string {
	var all []string
	for _, m := range driftLine.FindAllStringSubmatch(plan, -1) {
		all = append(all, m[1])
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func printTable(w io.Writer, all []figures) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprintln(t, "workers\tplan\twall s\tCPU s\tCPU ms/machine\tMB\tround trips\thandshakes\ttunnels\tKB by SSH\tEC2\tSSM\tSTS\tKB of state\tKB of text\t")
	for _, f := range all {
		_, _ = fmt.Fprintf(t, "%d\t%s\t%.1f\t%.2f\t%.1f\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f\t\n", f.Workers, f.Plan, f.Wall.Seconds(), f.CPU.Seconds(),
			float64(f.CPU.Milliseconds())/float64(f.Machines), f.Memory>>20, f.Trips, f.Shakes, f.Tunnels, f.Bytes>>10, f.EC2, f.SSM, f.STS,
			f.State>>10, float64(f.Text)/1024)
	}
	return t.Flush()
}
