package machine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/route"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/volume"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

// repairsOf compares one machine with its spec. A repair by a stop or a start has no fix: cycle makes all
// of them at once.
func repairsOf(c *aws.Client, spec Spec, o observation) []aws.Repair {
	m := o.machine()
	var out []aws.Repair
	value := func(kind finding.Kind, found, wanted string) finding.Finding {
		return finding.Finding{Subject: spec.Name, Kind: kind, Problem: finding.Value, Found: found, Wanted: wanted}
	}
	power := func(f finding.Finding) { out = append(out, aws.RepairOf(f, nil)) }
	if spec.InstanceType != "" && m.InstanceType != spec.InstanceType {
		power(value(finding.InstanceType, m.InstanceType, spec.InstanceType))
	}
	if m.PlacementGroup != spec.PlacementGroup {
		power(nameFinding(finding.PlacementGroup, spec.Name, m.PlacementGroup, spec.PlacementGroup))
	}
	if s, want := aws.StateOf(o.instance), spec.power(); isDown(s) != spec.Stopped || s == types.InstanceStateNameStopping {
		power(value(finding.Instance, string(s), string(want)))
	}
	if o.credits != "" && o.credits != spec.CPUCredits {
		out = append(out, aws.RepairOf(value(finding.CPUCredits, o.credits, spec.CPUCredits),
			func(ctx context.Context) error { return changeCredits(ctx, c, m.ID, spec.CPUCredits) }))
	}
	if n := primary(o.instance); n != nil {
		if want := !spec.PodCIDR.IsValid(); sdk.ToBool(n.SourceDestCheck) != want {
			out = append(out, aws.RepairOf(value(finding.SourceDestCheck, onOff(!want), onOff(want)),
				func(ctx context.Context) error { return setSourceDestCheck(ctx, c, m.InterfaceID, want) }))
		}
		if wanted := spec.groups(); len(wanted) > 0 && !slices.Equal(m.SecurityGroupIDs, wanted) {
			out = append(out, aws.RepairOf(value(finding.SecurityGroups, strings.Join(m.SecurityGroupIDs, ", "), strings.Join(wanted, ", ")), func(ctx context.Context) error {
				_, err := c.EC2.ModifyNetworkInterfaceAttribute(ctx, &ec2.ModifyNetworkInterfaceAttributeInput{
					NetworkInterfaceId: &m.InterfaceID, Groups: wanted,
				}, c.RetryUntilKnown())
				return aboutGroups(err)
			}))
		}
	}
	if o.instance.MetadataOptions != nil {
		if differs := diffMetadata(*o.instance.MetadataOptions); len(differs) > 0 {
			out = append(out, aws.Repair{Findings: finding.About(spec.Name, differs), Fix: func(ctx context.Context) error { return setMetadata(ctx, c, m.ID) }})
		}
	}
	if m.InstanceProfile != spec.InstanceProfile {
		out = append(out, aws.RepairOf(nameFinding(finding.InstanceProfile, spec.Name, m.InstanceProfile, spec.InstanceProfile),
			func(ctx context.Context) error { return setProfile(ctx, c, m.ID, spec.InstanceProfile) }))
	}
	for _, r := range route.Repairs(c, spec.toPods(), o.tables, m.ID, m.InterfaceID) {
		out = append(out, r.Repair)
	}
	if o.volume != nil {
		kinds := volume.Kinds{Size: finding.RootVolume, Type: finding.RootVolumeType, IOPS: finding.RootVolumeIOPS, Throughput: finding.RootVolumeThroughput}
		if differs, change := kinds.Compare(m.VolumeID, m.RootVolumeGiB, m.RootVolume, spec.rootGiB(), spec.rootVolume()); len(differs) > 0 {
			out = append(out, aws.Repair{Findings: finding.About(spec.Name, differs), Fix: func(ctx context.Context) error { return volume.Apply(ctx, c, change) }})
		}
	}
	if differs := dataVolumeFindings(spec, m.ID, o.data); len(differs) > 0 {
		out = append(out, aws.Repair{Findings: differs, Fix: func(ctx context.Context) error {
			_, err := attachDataVolume(ctx, c, m.ID, spec)
			return err
		}})
	}
	if differs := aws.DiffTags(tagsOf(c, spec), m.Tags); len(differs) > 0 {
		shown := o.instance.MetadataOptions != nil && o.instance.MetadataOptions.InstanceMetadataTags == types.InstanceMetadataTagsStateEnabled
		out = append(out, aws.Repair{Findings: finding.About(spec.Name, differs), Fix: func(ctx context.Context) error {
			if shown { // the metadata service can show none of our tags, whose keys have a slash
				if err := setMetadata(ctx, c, m.ID); err != nil {
					return err
				}
			}
			_, err := c.EC2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: m.tagged(), Tags: aws.EC2Tags(tagsOf(c, spec))})
			return err
		}})
	}
	return out
}

// tagged returns the ids of the resources that carry the machine's tags.
func (m Machine) tagged() []string {
	return slices.DeleteFunc([]string{m.ID, m.VolumeID, m.InterfaceID}, func(s string) bool { return s == "" })
}

func tagsOf(c *aws.Client, s Spec) map[string]string {
	out := c.ClusterTags(s.Cluster, s.kind(), s.Name, s.Tags)
	out[aws.TagRole] = string(s.Role)
	out[aws.TagUser] = s.User
	if s.Roll {
		out[aws.TagRoll] = s.rollTag()
	}
	maps.Copy(out, s.Claim.Tags())
	return out
}

// power returns the wanted state of the instance.
func (s Spec) power() types.InstanceStateName {
	if s.Stopped {
		return types.InstanceStateNameStopped
	}
	return types.InstanceStateNameRunning
}

// isDown reports whether the instance is stopped or about to be.
func isDown(s types.InstanceStateName) bool {
	return s == types.InstanceStateNameStopped || s == types.InstanceStateNameStopping
}

// Converge brings a running or stopped machine to what is wanted, in place. It stops the
// machine to change the instance type or the placement group, or if it is to be stopped. beforeStop, if not nil, is called
// before that; its error keeps the machine running. The returned machine is as it is afterwards. If it was started,
// its public address may have changed and its SSH server may not answer yet.
func Converge(ctx context.Context, c *aws.Client, id string, spec Spec, beforeStop func(context.Context, Machine) error) (Machine, error) {
	o, err := lookAt(ctx, c, id, routedVPC(spec))
	if err == nil && aws.StateOf(o.instance) == types.InstanceStateNamePending {
		if err = awaitBegun(ctx, c, id); err == nil {
			o, err = lookAt(ctx, c, id, routedVPC(spec))
		}
	}
	if err != nil {
		return Machine{}, fmt.Errorf("%s: %w", spec.describe(id), err)
	}
	take, err := spec.judge(o.instance, true)
	if err == nil && take {
		err = c.TakeOver(ctx, spec.Claim, o.machine().tagged())
	}
	if err != nil {
		return Machine{}, err
	}
	if err := errors.Join(observeData(ctx, c, spec, &o), observeCredits(ctx, c, spec, &o)); err != nil {
		return Machine{}, fmt.Errorf("%s: %w", spec.describe(id), err)
	}
	repairs := repairsOf(c, spec, o)
	g, gctx := parallel.WithContext(ctx)
	for _, r := range repairs {
		if r.Fix == nil {
			continue
		}
		g.Go(func() error {
			if err := r.Fix(gctx); err != nil {
				return fmt.Errorf("%s: repair %q: %w", spec.describe(id), finding.Words(r.Findings), err)
			}
			return nil
		})
	}
	g.Go(func() error { return c.RemoveTags(gctx, o.machine().tagged(), spec.RemoveTags, tagsOf(c, spec)) })
	if err := g.Wait(); err != nil {
		return o.machine(), err
	}
	cycled := slices.ContainsFunc(repairs, func(r aws.Repair) bool { return r.Fix == nil })
	if cycled {
		if err := cycle(ctx, c, o.instance, spec, beforeStop); err != nil {
			return o.machine(), fmt.Errorf("%s: %w", spec.describe(id), err)
		}
	} else if len(repairs) == 0 {
		return o.routed(spec), nil
	}
	now, err := lookAt(ctx, c, id, "")
	for attempt := 1; err == nil && attempt < aws.DoubtAttempts && (now.lags(c, spec) || cycled && now.addressLags(spec, o.instance)); attempt++ {
		if err = aws.Pause(ctx, attempt); err == nil {
			now, err = lookAt(ctx, c, id, "")
		}
	}
	now.tables = o.tables
	return now.routed(spec), err
}

// lags reports whether EC2 shows attributes of an instance or of its interface as they were before a change that it
// has taken.
func (o observation) lags(c *aws.Client, spec Spec) bool {
	shown := []finding.Kind{finding.InstanceType, finding.PlacementGroup, finding.SourceDestCheck, finding.SecurityGroups, finding.MetadataService}
	return slices.ContainsFunc(aws.FindingsOf(repairsOf(c, spec, o)), func(f finding.Finding) bool { return slices.Contains(shown, f.Kind) })
}

// addressLags reports whether EC2 shows no public address of a machine that was started, or the one that it had before it
// was stopped. An Elastic IP stays.
func (o observation) addressLags(spec Spec, before types.Instance) bool {
	if !spec.PublicIP || aws.StateOf(o.instance) != types.InstanceStateNameRunning {
		return false
	}
	ip := sdk.ToString(o.instance.PublicIpAddress)
	return ip == "" || ip == sdk.ToString(before.PublicIpAddress) && automatic(before)
}

// automatic reports whether the public address of an instance is one that EC2 has given it at its start.
func automatic(i types.Instance) bool {
	return slices.ContainsFunc(i.NetworkInterfaces, func(e types.InstanceNetworkInterface) bool {
		return e.Association != nil && sdk.ToString(e.Association.IpOwnerId) == "amazon"
	})
}

// routed returns the machine with every table that has its route now.
func (o observation) routed(spec Spec) Machine {
	m := o.machine()
	if spec.PodCIDR.IsValid() {
		m.RouteTables = route.TablesFor(o.tables, spec.toPods())
	}
	return m
}

// awaitBegun waits while a start is under way that somebody else has begun, such as an earlier apply
// that was killed. EC2 stops no instance then, and its public address is not final. The start may end
// in any state.
func awaitBegun(ctx context.Context, c *aws.Client, id string) error {
	_, err := c.AwaitInstance(ctx, id, "has started", func(s types.InstanceStateName) bool { return s != types.InstanceStateNamePending })
	return err
}

func setSourceDestCheck(ctx context.Context, c *aws.Client, networkInterface string, on bool) error {
	_, err := c.EC2.ModifyNetworkInterfaceAttribute(ctx, &ec2.ModifyNetworkInterfaceAttributeInput{
		NetworkInterfaceId: &networkInterface, SourceDestCheck: &types.AttributeBooleanValue{Value: &on},
	}, c.RetryUntilKnown())
	if err != nil {
		return fmt.Errorf("source/destination check of %s: %w", networkInterface, err)
	}
	return nil
}

// metadataHops is the hop limit of the metadata service: its answers reach the machine itself, and no pods.
const metadataHops = 1

// setMetadata sets every option of the metadata service: the account may have defaults for those that are left out.
func setMetadata(ctx context.Context, c *aws.Client, id string) error {
	_, err := c.EC2.ModifyInstanceMetadataOptions(ctx, &ec2.ModifyInstanceMetadataOptionsInput{
		InstanceId: &id, HttpTokens: types.HttpTokensStateRequired, HttpPutResponseHopLimit: sdk.Int32(metadataHops),
		HttpEndpoint: types.InstanceMetadataEndpointStateEnabled, HttpProtocolIpv6: types.InstanceMetadataProtocolStateDisabled,
		InstanceMetadataTags: types.InstanceMetadataTagsStateDisabled,
	})
	return err
}

// diffMetadata returns how the options of the metadata service differ from those wanted for every
// machine.
func diffMetadata(found types.InstanceMetadataOptionsResponse) []finding.Finding {
	var out []finding.Finding
	add := func(problem finding.Problem, found, wanted string) {
		out = append(out, finding.Finding{Kind: finding.MetadataService, Problem: problem, Found: found, Wanted: wanted})
	}
	if found.HttpTokens != types.HttpTokensStateRequired {
		add(finding.Tokens, string(found.HttpTokens), string(types.HttpTokensStateRequired))
	}
	if hops := sdk.ToInt32(found.HttpPutResponseHopLimit); hops != metadataHops {
		add(finding.HopLimit, strconv.Itoa(int(hops)), strconv.Itoa(metadataHops))
	}
	if found.HttpEndpoint == types.InstanceMetadataEndpointStateDisabled {
		add(finding.Endpoint, string(types.InstanceMetadataEndpointStateDisabled), string(types.InstanceMetadataEndpointStateEnabled))
	}
	if found.InstanceMetadataTags == types.InstanceMetadataTagsStateEnabled {
		add(finding.ShownTags, string(found.InstanceMetadataTags), string(types.InstanceMetadataTagsStateDisabled))
	}
	if found.HttpProtocolIpv6 == types.InstanceMetadataProtocolStateEnabled {
		add(finding.IPv6, string(found.HttpProtocolIpv6), string(types.InstanceMetadataProtocolStateDisabled))
	}
	return out
}

// nameFinding is about an object that a machine refers to by its name, or about its absence.
func nameFinding(kind finding.Kind, machine, found, wanted string) finding.Finding {
	f := finding.Finding{Subject: machine, Kind: kind, Problem: finding.Value, Found: found, Wanted: wanted}
	switch {
	case found == "":
		f.Problem = finding.Missing
	case wanted == "":
		f.Problem = finding.NotWanted
	}
	return f
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
