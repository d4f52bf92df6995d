package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab"
)

// field is an argument key=value of a kind of fault.
type field struct{ key, meaning string }

// kinds are the kinds of faults, in the order of the help.
var kinds = []struct {
	name, short string
	fields      []field
	example     string
}{
	{"throttle", "Refuse calls as EC2 does when there are too many", []field{
		{"every", "refuse every n-th call"}, {"fraction", "or this share of the calls, 0 to 1"}, {"action", "only calls of this action; may hold *"}, {"count", "number of times"},
	}, "throttle action=DescribeInstances every=3"},
	{"eventual", "Do not know new ids, attachments and changed attributes for a while", []field{
		{"milliseconds", "for this time"}, {"calls", "or for this number of lookups"}, {"action", "only what this action makes or changes, such as CreateInstanceProfile; may hold *"},
	}, "eventual milliseconds=500"},
	{"capacity", "Have no capacity (InsufficientInstanceCapacity)", []field{
		{"instances", "for more than this number of instances (0)"}, {"instance_type", "of this type; may hold *"}, {"zone", "in this availability zone; may hold *"},
		{"count", "number of times"}, {"action", "RunInstances (default) or StartInstances; may hold *"},
	}, "capacity instances=4 instance_type='t3.*' zone=us-east-1a"},
	{"zone", "Cut an availability zone off: no packet reaches its machines, NAT gateways and load balancers, and there is no capacity", []field{
		{"zone", "its name"},
	}, "zone zone=us-east-1a"},
	{"key", "Make a KMS key unusable, as if it were disabled or deleted", []field{{"name", "its id, ARN or alias"}}, "key name=alias/etcd"},
	{"slow-start", "Keep launched instances pending", []field{{"seconds", "for this time"}, {"count", "number of instances"}}, "slow-start seconds=20"},
	{"slow-snapshot", "Keep new snapshots and images pending, as AWS does for minutes", []field{{"seconds", "for this time"}, {"count", "number of snapshots"}}, "slow-snapshot seconds=180"},
	{"short-sessions", "Let the sessions that STS issues end soon", []field{{"seconds", "after this time"}}, "short-sessions seconds=30"},
	{"short-pages", "End the pages of answers early", []field{{"items", "after this number of items"}, {"action", "only of this action; may hold *"}, {"count", "number of times"}}, "short-pages items=1 action=DescribeRouteTables"},
	{"free-plan", "Refuse instance types that an account of AWS's free plan may not have (InvalidParameterCombination)", []field{{"count", "number of times"}}, "free-plan"},
	{"forget", "Show terminated instances only for a while", []field{{"seconds", "for this time"}}, "forget seconds=5"},
	{"fail", "Refuse calls with an error code", []field{
		{"code", "the code"}, {"action", "only calls of this action; may hold *"}, {"count", "number of times"}, {"message", "the message"}, {"status", "the HTTP status (400)"},
	}, "fail action=CreateVpc code=VpcLimitExceeded count=1"},
	{"kill", "Cut the power of a machine, now", []field{
		{"instance", "its id"}, {"outcome", "the resulting state of the instance: stopped (default), terminated or impaired"},
	}, "kill instance=i-0123456789abcdef0 outcome=impaired"},
	{"interrupt", "Interrupt a Spot instance: give it its notice now, and terminate it two minutes later", []field{
		{"instance", "its id"}, {"seconds", "time after the notice (120)"},
	}, "interrupt instance=i-0123456789abcdef0 seconds=60"},
	{"rebalance", "Recommend to replace a Spot instance, now", []field{{"instance", "its id"}}, "rebalance instance=i-0123456789abcdef0"},
	{"schedule", "Schedule an event of an instance, which happens at its time", []field{
		{"instance", "its id"}, {"code", "instance-reboot, system-reboot, instance-stop or instance-retirement"}, {"seconds", "time until it happens (0)"},
	}, "schedule instance=i-0123456789abcdef0 code=system-reboot seconds=60"},
	{"idle-flows", "Forget TCP connections without a packet, now, as EC2, NAT gateways and load balancers do after 350 seconds", []field{
		{"seconds", "those that have had no packet for this time"},
	}, "idle-flows seconds=75"},
	{"boot", "Disturb the first boot of machines", []field{
		{"fault", "apt-lists-locked, dpkg-locked, cloud-init-hangs or package-half-installed"}, {"seconds", "for this time"},
		{"package", "of package-half-installed"}, {"name", "only instances with this Name tag; may hold *"}, {"count", "number of instances"},
	}, "boot fault=dpkg-locked seconds=60 name='*-worker-*'"},
	{"mirror", "Serve a file of the artifact mirror damaged", []field{
		{"path", "of the file, such as /dl.k8s.io/..."}, {"fault", "flip, truncate, cut or missing"},
	}, "mirror path=/dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet fault=flip"},
	{"archive", "Disturb the package archive", []field{
		{"fault", "stall or unavailable"}, {"count", "number of requests"}, {"source", "only requests from this address"},
	}, "archive fault=stall count=3 source=203.0.113.9"},
	{"line", "Give every address a slow line to the internet, in place of an earlier one", []field{
		{"mbit", "megabits a second, for artifacts, packages and images together"}, {"milliseconds", "time until an answer begins"},
	}, "line mbit=256 milliseconds=20"},
	{"seed", "Seed the random decisions of faults with a fraction", []field{{"seed", "a number"}}, "seed seed=42"},
}

// fault injects faults.
func (c *cli) fault() *cobra.Command {
	cmd := &cobra.Command{
		Use: "fault", Short: "Make the lab misbehave as AWS sometimes does", Args: noArguments,
		Long:    "fault injects faults. A fault is in force until it is cleared, or until it has taken effect as many times as its count says.",
		Example: example("sudo k8s-lab fault throttle fraction=0.2", "sudo k8s-lab fault list", "sudo k8s-lab fault clear"),
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(
		&cobra.Command{
			Use: "list", Short: "List the faults in force, a JSON object a line", Args: noArguments,
			RunE: c.with(func(ctx context.Context, l *lab.Lab, _ []string) error {
				faults, err := l.Faults(ctx)
				if err != nil {
					return err
				}
				enc := json.NewEncoder(c.stdout)
				for _, f := range faults {
					if err := enc.Encode(f); err != nil {
						return err
					}
				}
				return nil
			}),
		},
		&cobra.Command{
			Use: "clear", Short: "Clear all faults", Args: noArguments,
			RunE: c.with(func(ctx context.Context, l *lab.Lab, _ []string) error { return l.ClearFaults(ctx) }),
		},
	)
	for _, k := range kinds {
		var shapes, meanings []string
		for _, f := range k.fields {
			shapes = append(shapes, f.key+"=...")
			meanings = append(meanings, fmt.Sprintf("  %-14s%s", f.key, f.meaning))
		}
		cmd.AddCommand(&cobra.Command{
			Use: k.name + " [" + strings.Join(shapes, " ") + "]", Short: k.short, DisableFlagsInUseLine: true,
			Long:    k.short + ".\n\n" + strings.Join(meanings, "\n"),
			Example: example("sudo k8s-lab fault " + k.example),
			RunE: c.with(func(ctx context.Context, l *lab.Lab, args []string) error {
				fields := map[string]any{"kind": k.name}
				for _, a := range args {
					key, value, ok := strings.Cut(a, "=")
					if !ok {
						return fmt.Errorf("%q is not of the form key=value", a)
					}
					if !slices.ContainsFunc(k.fields, func(f field) bool { return f.key == key }) {
						return fmt.Errorf("a %s fault has no %q; k8s-lab fault %s --help lists what it has", k.name, key, k.name)
					}
					fields[key] = number(value)
				}
				return l.Fault(ctx, fields)
			}),
		})
	}
	return cmd
}

// number returns a number if the value is one, else the string.
func number(s string) any {
	if n, err := strconv.ParseFloat(s, 64); err == nil {
		return n
	}
	return s
}
