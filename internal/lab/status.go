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
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
)

// Status is what a running lab holds. It has no secrets. Its JSON form is what programs read.
type Status struct {
	Dir       string           `json:"state_dir"`
	PID       int              `json:"pid"` // of the keeper; the lab ends with it
	Started   time.Time        `json:"started"`
	Endpoints Endpoints        `json:"endpoints"`
	Account   cloud.Overview   `json:"account"`
	Faults    []map[string]any `json:"faults"` // in the form of the control endpoint
	Host      host.Changes     `json:"host"`   // what labs changed on this host
}

// Endpoints are the addresses of a lab.
type Endpoints struct {
	API       string `json:"api"` // URL of the AWS APIs
	Region    string `json:"region"`
	Artifacts string `json:"artifacts"` // URL of the artifact mirror; empty if the lab is bare
	Images    string `json:"images"`    // URL of the image registry; likewise
	Machines  string `json:"machines"`  // what instances are: "container" or "vm"
	Network   string `json:"network"`   // CIDR of the public addresses
	Operator  string `json:"operator"`  // the host's address among them
}

// Status returns what a running lab holds.
func (l *Lab) Status(ctx context.Context) (Status, error) {
	out := Status{Dir: l.dir}
	var d Daemon
	var err error
	if out.Account, err = l.Overview(ctx); err != nil {
		return out, err
	}
	if d, err = l.daemon(ctx); err != nil {
		return out, err
	}
	out.PID, out.Started = d.Keeper, d.Started
	if out.Faults, err = l.Faults(ctx); err != nil {
		return out, err
	}
	if out.Host, err = host.This().Changes(); err != nil {
		return out, err
	}
	out.Endpoints, err = l.Endpoints()
	return out, err
}

// Endpoints returns the lab's addresses.
func (l *Lab) Endpoints() (Endpoints, error) {
	s, err := l.existingSettings()
	if err != nil {
		return Endpoints{}, err
	}
	return Endpoints{s.endpoint(), s.Region, s.mirror(), s.registry(), string(cmp.Or(s.Machines, machine.Container)), s.Slice.String(), s.Operator.String()}, nil
}

// Write writes the addresses for people.
func (e Endpoints) Write(w io.Writer) error {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.endpoints(e)
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

func (t table) endpoints(e Endpoints) {
	t.row("API", e.API, e.Region)
	if e.Artifacts == "" {
		t.row("artifacts", "none: the lab is bare")
	} else {
		t.row("artifacts", e.Artifacts)
		t.row("images", e.Images)
	}
	if e.Machines == string(machine.VirtualMachine) {
		t.row("machines", "virtual machines")
	}
	t.row("network", e.Network, "operator "+e.Operator)
}

// Write writes the status for people.
func (s Status) Write(w io.Writer, now time.Time) error {
	o := s.Account
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	_, _ = fmt.Fprintf(t, "Local EC2 in %s, up %s (pid %d)\n", s.Dir, age(now, s.Started), s.PID)
	t.endpoints(s.Endpoints)

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
	if len(o.NATGateways) > 0 {
		t.head("NAT gateways", "NAME", "ID", "STATE", "SUBNET")
		for _, g := range o.NATGateways {
			t.row(dash(g.Name), g.ID, g.Detail, g.User)
		}
	}
	if len(o.ConnectEndpoints) > 0 {
		t.head("EC2 Instance Connect Endpoints", "NAME", "ID", "STATE", "SUBNET")
		for _, e := range o.ConnectEndpoints {
			t.row(dash(e.Name), e.ID, e.Detail, e.User)
		}
	}
	if len(o.LoadBalancers) > 0 {
		t.head("Load balancers", "NAME", "STATE", "VPC")
		for _, b := range o.LoadBalancers {
			t.row(b.Name, b.Detail, b.User)
		}
	}
	if len(o.TargetGroups) > 0 {
		t.head("Target groups", "NAME", "TARGETS")
		for _, g := range o.TargetGroups {
			t.row(g.Name, dash(g.Detail))
		}
	}
	if len(o.Addresses) > 0 {
		t.head("Elastic IPs", "NAME", "ADDRESS", "ID", "USED BY")
		for _, a := range o.Addresses {
			t.row(dash(a.Name), a.Detail, a.ID, dash(a.User))
		}
	}
	if n := len(o.Parameters); n > 0 {
		t.head(fmt.Sprintf("Parameters: %d", n))
	}
	if len(o.Buckets) > 0 {
		t.head("Buckets")
		for _, b := range o.Buckets {
			t.row(b)
		}
	}
	if o.NetworkError != "" {
		t.head("The network is not as it should be: " + o.NetworkError)
	}
	if len(s.Faults) == 0 {
		t.head("Faults: none")
	} else {
		t.head("Faults")
		for _, f := range s.Faults {
			t.row(describeFault(f))
		}
	}
	if len(s.Host.Settings)+len(s.Host.Controllers)+len(s.Host.Modules) > 0 {
		t.head("Changed on this host")
	}
	for _, c := range s.Host.Settings {
		t.row(c.Path, fmt.Sprintf("%d, was %d", c.Now, c.Before), "put back when the last lab goes down")
	}
	for _, c := range s.Host.Controllers {
		t.row(c.Path, "+"+c.Name, "disabled when the last lab goes down")
	}
	for _, m := range s.Host.Modules {
		t.row("module "+m, "loaded", "stays until the host reboots")
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
