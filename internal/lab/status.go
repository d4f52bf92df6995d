package lab

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
)

// Status writes a summary of a running lab for people. It shows no secrets.
func (l *Lab) Status(ctx context.Context, w io.Writer) error {
	o, err := l.Overview(ctx)
	if err != nil {
		return err
	}
	d, err := l.daemon(ctx)
	if err != nil {
		return err
	}
	faults, err := l.Faults(ctx)
	if err != nil {
		return err
	}
	s, err := l.readSettings()
	if err != nil {
		return err
	}
	return writeStatus(w, l.dir, s, d, o, faults, time.Now())
}

// Summary writes the lab's addresses. It is shown after Up.
func (l *Lab) Summary(w io.Writer) error {
	s, err := l.readSettings()
	if err != nil {
		return err
	}
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.endpoints(s)
	return t.Flush()
}

type table struct{ *tabwriter.Writer }

func (t table) row(cells ...string) { _, _ = fmt.Fprintf(t, "  %s\n", strings.Join(cells, "\t")) }

// head begins a new block. Each block is aligned by itself.
func (t table) head(title string, columns ...string) {
	_ = t.Flush()
	_, _ = fmt.Fprintf(t, "\n%s\n", title)
	if len(columns) > 0 {
		t.row(columns...)
	}
}

func (t table) endpoints(s settings) {
	t.row("API", s.endpoint(), Region)
	t.row("artifacts", s.mirror())
	t.row("images", s.registry())
	t.row("network", s.Slice.String(), "operator "+s.Operator.String())
}

func writeStatus(w io.Writer, dir string, s settings, d Daemon, o cloud.Overview, faults []map[string]any, now time.Time) error {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	_, _ = fmt.Fprintf(t, "Local EC2 in %s, up %s (pid %d)\n", dir, age(now, d.Started), d.PID)
	t.endpoints(s)

	if len(o.Instances) == 0 {
		t.head("Instances: none")
	} else {
		t.head("Instances", "NAME", "ID", "STATE", "TYPE", "PRIVATE IP", "PUBLIC IP", "UPTIME")
		slices.SortFunc(o.Instances, func(a, b ec2.InstanceOverview) int {
			return cmp.Or(cmp.Compare(a.VPC, b.VPC), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
		})
		for _, i := range o.Instances {
			up := "-"
			if i.State == "running" {
				up = age(now, i.Launched)
			}
			if i.Impaired {
				i.State += " (dead)"
			}
			t.row(dash(i.Name), i.ID, i.State, i.Type, dash(i.PrivateIP), dash(i.PublicIP), up)
		}
	}
	if len(o.VPCs) > 0 {
		t.head("VPCs", "NAME", "ID", "CIDR", "SUBNETS", "GROUPS", "INSTANCES")
		for _, v := range o.VPCs {
			inVPC := func(list []ec2.NamedOverview) string {
				return fmt.Sprint(len(slices.DeleteFunc(slices.Clone(list), func(n ec2.NamedOverview) bool { return n.User != v.ID })))
			}
			instances := 0
			for _, i := range o.Instances {
				if i.VPC == v.ID {
					instances++
				}
			}
			t.row(dash(v.Name), v.ID, v.Detail, inVPC(o.Subnets), inVPC(o.Groups), fmt.Sprint(instances))
		}
	}
	if len(o.Addresses) > 0 {
		t.head("Elastic IPs", "NAME", "ADDRESS", "ID", "INSTANCE")
		for _, a := range o.Addresses {
			t.row(dash(a.Name), a.Detail, a.ID, dash(a.User))
		}
	}
	if n := len(o.Parameters); n > 0 {
		t.head(fmt.Sprintf("Parameters: %d", n))
	}
	if o.NetworkError != "" {
		t.head("The network is not as it should be: " + o.NetworkError)
	}
	if len(faults) == 0 {
		t.head("Faults: none")
	} else {
		t.head("Faults")
		for _, f := range faults {
			t.row(describeFault(f))
		}
	}
	return t.Flush()
}

func describeFault(f map[string]any) string {
	words := []string{fmt.Sprint(f["kind"])}
	for _, k := range slices.Sorted(maps.Keys(f)) {
		if k != "kind" {
			words = append(words, fmt.Sprintf("%s=%v", k, f[k]))
		}
	}
	return strings.Join(words, " ")
}

func dash(s string) string { return cmp.Or(s, "-") }

func age(now, since time.Time) string { return now.Sub(since).Round(time.Second).String() }
