package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/sync/errgroup"
)

// machineFinding is one difference and what ends it. What needs the instance
// stopped comes as one fix on its own.
type machineFinding struct {
	words string
	power bool   // fixed by stopping and starting
	table string // route table it is about
	fix   func(context.Context) error
}

// machineFindings compares one machine with its spec.
func (c *Client) machineFindings(spec MachineSpec, o observation) []machineFinding {
	m := o.machine()
	var out []machineFinding
	add := func(fix func(context.Context) error, format string, args ...any) {
		out = append(out, machineFinding{words: fmt.Sprintf(format, args...), fix: fix})
	}
	if spec.InstanceType != "" && m.InstanceType != spec.InstanceType {
		out = append(out, machineFinding{words: fmt.Sprintf("instance type: found %s, wanted %s", m.InstanceType, spec.InstanceType), power: true})
	}
	if s := stateOf(o.instance); s == types.InstanceStateNameStopped || s == types.InstanceStateNameStopping {
		out = append(out, machineFinding{words: fmt.Sprintf("instance: found %s, wanted running", s), power: true})
	}
	if n := primary(o.instance); n != nil {
		if want := !spec.PodCIDR.IsValid(); sdk.ToBool(n.SourceDestCheck) != want {
			add(func(ctx context.Context) error { return c.setSourceDestCheck(ctx, m.InterfaceID, want) },
				"source/destination check: found %s, wanted %s", onOff(!want), onOff(want))
		}
		if found := groupIDs(n.Groups); spec.SecurityGroupID != "" && !slices.Equal(found, []string{spec.SecurityGroupID}) {
			add(func(ctx context.Context) error {
				_, err := c.EC2.ModifyNetworkInterfaceAttribute(ctx, &ec2.ModifyNetworkInterfaceAttributeInput{
					NetworkInterfaceId: &m.InterfaceID, Groups: []string{spec.SecurityGroupID},
				}, c.settling())
				return err
			}, "security groups: found %s, wanted %s", strings.Join(found, ", "), spec.SecurityGroupID)
		}
	}
	if o.instance.MetadataOptions != nil {
		if words := diffMetadata(*o.instance.MetadataOptions); words != "" {
			add(func(ctx context.Context) error {
				_, err := c.EC2.ModifyInstanceMetadataOptions(ctx, &ec2.ModifyInstanceMetadataOptionsInput{
					InstanceId: &m.ID, HttpTokens: types.HttpTokensStateRequired, HttpPutResponseHopLimit: sdk.Int32(1),
					HttpEndpoint: types.InstanceMetadataEndpointStateEnabled,
				})
				return err
			}, "metadata service: %s", words)
		}
	}
	out = append(out, c.routeFindings(spec, o.tables, m.ID, m.InterfaceID)...)
	if o.volume != nil && m.RootVolumeGiB < spec.RootVolumeGiB {
		add(func(ctx context.Context) error {
			return c.growVolume(ctx, m.VolumeID, spec.RootVolumeGiB)
		}, "root volume: found %d GiB, wanted %d GiB", m.RootVolumeGiB, spec.RootVolumeGiB)
	}
	if words := diffTags(c.machineTags(spec), m.Tags); len(words) > 0 {
		add(func(ctx context.Context) error {
			_, err := c.EC2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: m.tagged(), Tags: ec2Tags(c.machineTags(spec))})
			return err
		}, "%s", strings.Join(words, "; "))
	}
	return out
}

// tagged lists what carries the machine's tags.
func (m Machine) tagged() []string {
	return slices.DeleteFunc([]string{m.ID, m.VolumeID, m.InterfaceID}, func(s string) bool { return s == "" })
}

func (c *Client) machineTags(s MachineSpec) map[string]string {
	out := c.clusterTags(s.Cluster, kindMachine, s.Name, s.Tags)
	out[TagRole] = string(s.Role)
	out[TagUser] = s.User
	if s.Claim != "" {
		out[TagClaim] = s.Claim
	}
	return out
}

// ConvergeMachine brings a running or stopped machine to what is wanted, in
// place: it is stopped only for another instance type. beforeStop, when given,
// readies it for that, and its error keeps the machine running. It returns the machine
// as it is afterwards; whether it was started, its public address may be a new
// one, and nothing is known of its SSH server yet.
func (c *Client) ConvergeMachine(ctx context.Context, id string, spec MachineSpec, beforeStop func(context.Context, Machine) error) (Machine, error) {
	o, err := c.observe(ctx, id, routedVPC(spec))
	if err != nil {
		return Machine{}, fmt.Errorf("%s: %w", spec.describe(id), err)
	}
	findings := c.machineFindings(spec, o)
	g, gctx := errgroup.WithContext(ctx)
	for _, f := range findings {
		if f.power {
			continue
		}
		g.Go(func() error {
			if err := f.fix(gctx); err != nil {
				return fmt.Errorf("%s: repair %q: %w", spec.describe(id), f.words, err)
			}
			return nil
		})
	}
	g.Go(func() error { return c.deleteTags(gctx, o.machine().tagged(), spec.RemoveTags, c.machineTags(spec)) })
	if err := g.Wait(); err != nil {
		return o.machine(), err
	}
	if slices.ContainsFunc(findings, func(f machineFinding) bool { return f.power }) {
		if err := c.cycle(ctx, o.instance, spec, beforeStop); err != nil {
			return o.machine(), fmt.Errorf("%s: %w", spec.describe(id), err)
		}
	} else if len(findings) == 0 {
		return o.routed(spec), nil
	}
	now, err := c.observe(ctx, id, "")
	now.tables = o.tables
	return now.routed(spec), err
}

// routed returns the machine with every table that has its route by now.
func (o observation) routed(spec MachineSpec) Machine {
	m := o.machine()
	if spec.PodCIDR.IsValid() {
		m.RouteTables = podTables(o.tables, spec)
	}
	return m
}

// cycle starts the instance, after stopping it when its type has to change.
func (c *Client) cycle(ctx context.Context, i types.Instance, spec MachineSpec, beforeStop func(context.Context, Machine) error) error {
	id := sdk.ToString(i.InstanceId)
	change := spec.InstanceType != "" && string(i.InstanceType) != spec.InstanceType
	if change || stateOf(i) == types.InstanceStateNameStopping {
		if stateOf(i) == types.InstanceStateNameRunning || stateOf(i) == types.InstanceStateNamePending {
			if beforeStop != nil {
				if err := beforeStop(ctx, machineOf(i)); err != nil {
					return err
				}
			}
			if _, err := c.EC2.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: []string{id}}); err != nil {
				return fmt.Errorf("stop: %w", err)
			}
		}
		if _, err := c.waitState(ctx, id, types.InstanceStateNameStopped); err != nil {
			return err
		}
	}
	if change {
		if _, err := c.EC2.ModifyInstanceAttribute(ctx, &ec2.ModifyInstanceAttributeInput{
			InstanceId: &id, InstanceType: &types.AttributeValue{Value: &spec.InstanceType},
		}); err != nil {
			return fmt.Errorf("change the instance type to %s: %w", spec.InstanceType, err)
		}
	}
	if _, err := c.EC2.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: []string{id}}); err != nil {
		return fmt.Errorf("start: %w", err)
	}
	_, err := c.waitState(ctx, id, types.InstanceStateNameRunning)
	return err
}

// waitState waits for a state, and fails at once when the instance is gone.
func (c *Client) waitState(ctx context.Context, id string, wanted types.InstanceStateName) (types.Instance, error) {
	var found types.Instance
	err := poll(ctx, fmt.Sprintf("wait until instance %s is %s", id, wanted), func(ctx context.Context) (bool, string, error) {
		i, err := c.instance(ctx, id, c.settling())
		if err != nil {
			return false, "", err
		}
		found = i
		return stateOf(i) == wanted, string(stateOf(i)), nil
	})
	return found, err
}

func (c *Client) setSourceDestCheck(ctx context.Context, networkInterface string, on bool) error {
	_, err := c.EC2.ModifyNetworkInterfaceAttribute(ctx, &ec2.ModifyNetworkInterfaceAttributeInput{
		NetworkInterfaceId: &networkInterface, SourceDestCheck: &types.AttributeBooleanValue{Value: &on},
	}, c.settling())
	if err != nil {
		return fmt.Errorf("source/destination check of %s: %w", networkInterface, err)
	}
	return nil
}

func diffMetadata(found types.InstanceMetadataOptionsResponse) string {
	var words []string
	if found.HttpTokens != types.HttpTokensStateRequired {
		words = append(words, "tokens are "+string(found.HttpTokens)+", wanted required")
	}
	if hops := sdk.ToInt32(found.HttpPutResponseHopLimit); hops != 1 {
		words = append(words, fmt.Sprintf("hop limit is %d, wanted 1", hops))
	}
	if found.HttpEndpoint == types.InstanceMetadataEndpointStateDisabled {
		words = append(words, "endpoint is disabled, wanted enabled")
	}
	return strings.Join(words, ", ")
}

func groupIDs(groups []types.GroupIdentifier) []string {
	var out []string
	for _, g := range groups {
		out = append(out, sdk.ToString(g.GroupId))
	}
	slices.Sort(out)
	return out
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
