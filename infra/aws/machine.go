package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/sync/errgroup"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

const kindMachine = "machine"

// Defaults of a machine.
const (
	DefaultInstanceType  = "t3.small"
	DefaultRootVolumeGiB = 20
	DefaultUser          = "admin" // in Debian's images
)

// MachineSpec is the wanted state of one machine.
type MachineSpec struct {
	Cluster, Name string
	Role          Role

	SubnetID, SecurityGroupID string
	// VPCID and NetworkSubnets, the ids of all subnets of the network, say which route tables get
	// the route to the machine's pods: all that apply to one of the subnets, either associated with
	// it or as the VPC's main table.
	VPCID          string
	NetworkSubnets []string
	// RoutedTables lists the tables that got the route earlier. A route in them that leads
	// elsewhere is corrected, and the route is removed from tables that no longer apply to a
	// subnet. A route elsewhere in other tables belongs to others.
	RoutedTables []string
	// PrivateIP never changes during the machine's life; zero lets EC2 choose.
	PrivateIP netip.Addr
	// PodCIDR, when set, is routed to the machine, whose source/destination check is then off.
	PodCIDR netip.Prefix
	// PublicIP asks for a public address at launch.
	PublicIP bool

	// Stopped says that the instance is to be stopped, and not to run.
	Stopped bool

	InstanceType string
	// Image is an AMI id, or the name of an SSM parameter that holds one. It is used only at
	// launch.
	Image         string
	RootVolumeGiB int32

	User           string   // login user that cloud-init makes
	AuthorizedKeys []string // its SSH public keys

	// InstanceProfile is the name of the machine's instance profile. If it is empty, the machine has
	// none: one that somebody else has given it is taken away.
	InstanceProfile string

	// DataVolume is the volume with the machine's data, nil without one.
	DataVolume *DataVolume

	// Claim says whose the machine is. What it does not own is neither changed nor terminated.
	Claim Claim

	Tags map[string]string
	// RemoveTags and RemovePodCIDR are what an earlier spec had and this one no longer has.
	RemoveTags    []string
	RemovePodCIDR netip.Prefix
}

// Machine is one instance as found in EC2.
type Machine struct {
	ID                  string
	Cluster, Name, User string // from its tags
	Role                Role
	State               string    // as EC2 calls it: "running", "stopped", ...
	Started             time.Time // when it was last launched or started
	PrivateIP, PublicIP netip.Addr
	ImageID             string
	InstanceType        string
	InstanceProfile     string // name; empty if it has none
	InterfaceID         string
	SubnetID, VPCID     string
	VolumeID            string
	RootVolumeGiB       int32
	// Data is the data volume that it has, for an import: set by FindMachine only.
	Data *DataVolume
	data *Volume // the wanted data volume, nil if it does not exist: set by ObserveMachine only
	// HostKey is the SSH host key in its tags, "ssh-ed25519 AAAA..."; empty before the machine has
	// one of its own.
	HostKey string
	Claim   Claim // whose it is
	Tags    map[string]string
	// Unsettled lists the ids of what carries the claim and is not settled.
	Unsettled []string
	// RouteTables lists the route tables with a route to its pods that leads to it, of those that
	// were read.
	RouteTables []string
}

// Address returns the address at which the machine is reached from outside its network.
func (m Machine) Address() netip.Addr {
	if m.PublicIP.IsValid() {
		return m.PublicIP
	}
	return m.PrivateIP
}

// gone lists the states from which an instance does not return.
var gone = []types.InstanceStateName{types.InstanceStateNameShuttingDown, types.InstanceStateNameTerminated}

func stateOf(i types.Instance) types.InstanceStateName {
	if i.State == nil {
		return types.InstanceStateNamePending
	}
	return i.State.Name
}

func machineOf(i types.Instance) Machine {
	tags := tagMap(i.Tags)
	m := Machine{
		ID:      sdk.ToString(i.InstanceId),
		Cluster: tags[TagCluster], Name: tags[TagResource], Role: Role(tags[TagRole]), User: tags[TagUser],
		State: string(stateOf(i)), Started: sdk.ToTime(i.LaunchTime),
		ImageID: sdk.ToString(i.ImageId), InstanceType: string(i.InstanceType), InstanceProfile: profileIn(i),
		SubnetID: sdk.ToString(i.SubnetId), VPCID: sdk.ToString(i.VpcId),
		HostKey: tags[TagHostKey], Claim: Held(tags), Tags: tags,
	}
	m.PrivateIP, _ = netip.ParseAddr(sdk.ToString(i.PrivateIpAddress))
	m.PublicIP, _ = netip.ParseAddr(sdk.ToString(i.PublicIpAddress))
	if n := primary(i); n != nil {
		m.InterfaceID = sdk.ToString(n.NetworkInterfaceId)
	}
	for _, d := range i.BlockDeviceMappings {
		if d.Ebs != nil && sdk.ToString(d.DeviceName) == sdk.ToString(i.RootDeviceName) {
			m.VolumeID = sdk.ToString(d.Ebs.VolumeId)
		}
	}
	if holderOf(tags).unsettled() {
		m.Unsettled = m.tagged()
	}
	return m
}

// primary returns the interface with index 0.
func primary(i types.Instance) *types.InstanceNetworkInterface {
	for k, n := range i.NetworkInterfaces {
		if n.Attachment == nil || sdk.ToInt32(n.Attachment.DeviceIndex) == 0 {
			return &i.NetworkInterfaces[k]
		}
	}
	return nil
}

// instance returns one instance. The error is ErrNotFound if it certainly does not exist any more.
func (c *Client) instance(ctx context.Context, id string, opts ...func(*ec2.Options)) (types.Instance, error) {
	out, err := c.EC2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}}, opts...)
	if IsCode(err, "InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed") {
		return types.Instance{}, fmt.Errorf("instance %s %w", id, ErrNotFound)
	}
	if err != nil {
		return types.Instance{}, fmt.Errorf("describe instance %s: %w", id, err)
	}
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			if sdk.ToString(i.InstanceId) == id {
				if slices.Contains(gone, stateOf(i)) {
					return i, fmt.Errorf("instance %s is %s (%s) and %w any more", id, stateOf(i), reason(i), ErrNotFound)
				}
				return i, nil
			}
		}
	}
	return types.Instance{}, fmt.Errorf("instance %s %w", id, ErrNotFound)
}

// reason returns why an instance changed its state, according to EC2.
func reason(i types.Instance) string {
	if i.StateReason != nil && sdk.ToString(i.StateReason.Message) != "" {
		return sdk.ToString(i.StateReason.Message)
	}
	if s := sdk.ToString(i.StateTransitionReason); s != "" {
		return s
	}
	return "no reason given"
}

// instances returns every instance with the machine's tags, including terminated ones that EC2
// still lists.
func (c *Client) instances(ctx context.Context, cluster, name string) ([]types.Instance, error) {
	pages := ec2.NewDescribeInstancesPaginator(c.EC2, &ec2.DescribeInstancesInput{Filters: []types.Filter{
		tagFilter(TagCluster, cluster), tagFilter(TagKind, kindMachine), tagFilter(TagResource, name),
	}})
	var out []types.Instance
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("look for instances of machine %s: %w", name, err)
		}
		for _, r := range page.Reservations {
			out = append(out, r.Instances...)
		}
	}
	slices.SortFunc(out, func(a, b types.Instance) int { return compareStrings(a.InstanceId, b.InstanceId) })
	return out, nil
}

// observation is everything that EC2 knows of a machine.
type observation struct {
	instance types.Instance
	volume   *types.Volume      // the root volume
	volumes  []types.Volume     // all that are attached
	data     *Volume            // the wanted data volume; see observeData
	tables   []types.RouteTable // of the VPC; none if no VPC was given
}

// observe makes all calls at once. It reads the route tables of vpc unless that is empty.
func (c *Client) observe(ctx context.Context, id, vpc string) (observation, error) {
	var o observation
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		i, err := c.instance(gctx, id, c.retryOn(doubtAttempts, notYet...))
		o.instance = i
		return err
	})
	g.Go(func() error {
		out, err := c.EC2.DescribeVolumes(gctx, &ec2.DescribeVolumesInput{Filters: []types.Filter{filter("attachment.instance-id", id)}})
		if err != nil {
			return fmt.Errorf("describe the volumes of instance %s: %w", id, err)
		}
		o.volumes = out.Volumes
		return nil
	})
	g.Go(func() (err error) {
		if vpc != "" {
			o.tables, err = c.routeTables(gctx, vpc)
		}
		return err
	})
	err := g.Wait()
	root := o.machine().VolumeID
	for n, v := range o.volumes {
		if root == "" || sdk.ToString(v.VolumeId) == root {
			o.volume = &o.volumes[n]
			break
		}
	}
	return o, err
}

// observeData finds the wanted data volume, wherever it is attached. If it does not exist, there is no
// error and no volume.
func (c *Client) observeData(ctx context.Context, spec MachineSpec, o *observation) error {
	if spec.DataVolume == nil {
		return nil
	}
	for _, v := range o.volumes {
		if sdk.ToString(v.VolumeId) == spec.DataVolume.ID {
			found := volumeOf(v)
			o.data = &found
			return nil
		}
	}
	v, err := c.FindVolume(ctx, spec.DataVolume.ID)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	o.data = &v
	return err
}

func (o observation) machine() Machine {
	m := machineOf(o.instance)
	if o.volume != nil {
		m.RootVolumeGiB = sdk.ToInt32(o.volume.Size)
	}
	return m
}

// ObserveMachine returns how the machine differs from what is wanted. The error is ErrNotFound if
// it certainly does not exist any more, and a ClaimedError if it is another's.
func (c *Client) ObserveMachine(ctx context.Context, id string, spec MachineSpec) (Machine, []finding.Finding, error) {
	o, err := c.observe(ctx, id, routedVPC(spec))
	if err != nil {
		return Machine{}, nil, fmt.Errorf("machine %s: %w", spec.Name, err)
	}
	if _, err := spec.judge(o.instance, true); err != nil {
		return Machine{}, nil, err
	}
	if err := c.observeData(ctx, spec, &o); err != nil {
		return Machine{}, nil, fmt.Errorf("machine %s: %w", spec.Name, err)
	}
	m := o.machine()
	m.data = o.data
	// In other tables, a route that leads to the machine belongs to others.
	held := podTables(o.tables, spec)
	m.RouteTables = slices.DeleteFunc(o.leading(spec), func(table string) bool { return !slices.Contains(held, table) })
	if spec, err = c.withoutGone(ctx, spec, o); err != nil {
		return m, nil, fmt.Errorf("machine %s: %w", spec.Name, err)
	}
	return m, findingsOf(c.machineRepairs(spec, o)), nil
}

// DescribeMachine returns the machine as EC2 now describes it, without its volume. The error is
// ErrNotFound if it certainly does not exist any more.
func (c *Client) DescribeMachine(ctx context.Context, id string) (Machine, error) {
	i, err := c.instance(ctx, id, c.retryOn(doubtAttempts, notYet...))
	return machineOf(i), err
}

// routedVPC returns the VPC whose route tables must be read; empty for a machine without pods.
func routedVPC(s MachineSpec) string {
	if !s.PodCIDR.IsValid() && !s.RemovePodCIDR.IsValid() {
		return ""
	}
	return s.VPCID
}

// FindMachine returns a machine by its instance id, with its pod network, for an import.
func (c *Client) FindMachine(ctx context.Context, id string) (Machine, netip.Prefix, error) {
	o, err := c.observe(ctx, id, "")
	if err != nil {
		return Machine{}, netip.Prefix{}, err
	}
	m := o.machine()
	if m.Cluster == "" || m.Name == "" || m.HostKey == "" {
		return m, netip.Prefix{}, fmt.Errorf("instance %s was not made by this provider, or its creation never ended: the tags %s, %s and %s say which machine it is and which host key it has",
			id, TagCluster, TagResource, TagHostKey)
	}
	for _, attached := range o.volumes {
		if v := volumeOf(attached); v.Tags[TagKind] == kindVolume && v.Cluster == m.Cluster && v.Tags[TagMountPoint] != "" {
			m.Data = &DataVolume{ID: v.ID, MountPoint: v.Tags[TagMountPoint]}
		}
	}
	tables, err := c.routeTables(ctx, m.VPCID)
	if err != nil {
		return m, netip.Prefix{}, err
	}
	for _, t := range tables {
		for _, r := range t.Routes {
			pods, err := netip.ParsePrefix(sdk.ToString(r.DestinationCidrBlock))
			if err == nil && sdk.ToString(r.NetworkInterfaceId) == m.InterfaceID {
				return m, pods, nil
			}
		}
	}
	return m, netip.Prefix{}, nil
}

// FindMachines returns the running machines of a cluster, by role and name.
func (c *Client) FindMachines(ctx context.Context, cluster string) ([]Machine, error) {
	return c.findMachines(ctx, cluster, types.InstanceStateNameRunning)
}

// FindAllMachines returns the machines of a cluster, also those that do not run, by role and name.
func (c *Client) FindAllMachines(ctx context.Context, cluster string) ([]Machine, error) {
	return c.findMachines(ctx, cluster, types.InstanceStateNamePending, types.InstanceStateNameRunning, types.InstanceStateNameStopping, types.InstanceStateNameStopped)
}

func (c *Client) findMachines(ctx context.Context, cluster string, states ...types.InstanceStateName) ([]Machine, error) {
	var names []string
	for _, s := range states {
		names = append(names, string(s))
	}
	pages := ec2.NewDescribeInstancesPaginator(c.EC2, &ec2.DescribeInstancesInput{Filters: []types.Filter{
		tagFilter(TagCluster, cluster), tagFilter(TagKind, kindMachine), filter("instance-state-name", names...),
	}})
	var out []Machine
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("look for the machines of cluster %s: %w", cluster, err)
		}
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				out = append(out, machineOf(i))
			}
		}
	}
	slices.SortFunc(out, func(a, b Machine) int {
		return cmp.Or(strings.Compare(string(a.Role), string(b.Role)), strings.Compare(a.Name, b.Name))
	})
	return out, nil
}

// DeleteMachine terminates the instance, waits until it is gone, and removes the routes to its
// pods. An instance that does not exist is no error. The error is a ClaimedError if it is
// another's.
func (c *Client) DeleteMachine(ctx context.Context, id string, spec MachineSpec) error {
	var tables []types.RouteTable
	err := c.CheckMachine(ctx, id, spec)
	if err == nil && spec.PodCIDR.IsValid() && spec.VPCID != "" {
		tables, err = c.routeTables(ctx, spec.VPCID)
	}
	if err == nil {
		g, gctx := errgroup.WithContext(ctx)
		g.Go(func() error { return c.terminate(gctx, id) })
		g.Go(func() error { return c.deletePodRoutes(gctx, spec, tables, id) })
		err = g.Wait()
	}
	if err != nil {
		return fmt.Errorf("machine %s (%s): %w", spec.Name, id, err)
	}
	return nil
}

// CheckMachine returns a ClaimedError if the instance is another's, and an error if whose it is
// cannot be read. An instance that does not exist is no error.
func (c *Client) CheckMachine(ctx context.Context, id string, spec MachineSpec) error {
	i, err := c.instance(ctx, id, c.retryOn(doubtAttempts, notYet...))
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err == nil {
		_, err = spec.judge(i, true)
	}
	return err
}

// judge decides about an instance. known says that the caller knows its id.
func (s MachineSpec) judge(i types.Instance, known bool) (take bool, err error) {
	if take, err = s.Claim.judge("instance "+sdk.ToString(i.InstanceId), holderOf(tagMap(i.Tags)), known); err != nil {
		err = fmt.Errorf("machine %s of cluster %s: %w", s.Name, s.Cluster, err)
	}
	return take, err
}

func (c *Client) terminate(ctx context.Context, id string) error {
	_, err := c.EC2.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{id}}, c.retryOn(doubtAttempts, notYet...))
	if IsCode(err, "InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed") {
		return nil
	}
	if err != nil {
		return fmt.Errorf("terminate: %w", err)
	}
	return c.awaitTerminated(ctx, id)
}

func (c *Client) awaitTerminated(ctx context.Context, id string) error {
	return poll(ctx, "wait until it is terminated", func(ctx context.Context) (bool, string, error) {
		i, err := c.instance(ctx, id)
		switch {
		case errors.Is(err, ErrNotFound):
			return stateOf(i) != types.InstanceStateNameShuttingDown, "shutting-down", nil
		case err != nil:
			return false, "", err
		}
		return false, string(stateOf(i)), nil
	})
}

func (s MachineSpec) describe(id string) string {
	return strings.TrimSpace("machine " + s.Name + " (" + id + ")")
}
