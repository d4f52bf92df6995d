package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/sync/errgroup"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// instances returns every instance with the machine's tags, including terminated ones that EC2
// still lists.
func (c *Client) instances(ctx context.Context, cluster, name string) ([]types.Instance, error) {
	found, _, err := machineMemoryOf(c).lookups.machines.ask(ctx, machineName{cluster, name})
	if err != nil {
		return nil, fmt.Errorf("look for instances of machine %s: %w", name, err)
	}
	return found, nil
}

// observation is everything that EC2 knows of a machine.
type observation struct {
	instance types.Instance
	volume   *types.Volume      // the root volume
	volumes  []types.Volume     // all that are attached
	data     *Volume            // the wanted data volume; see observeData
	credits  string             // the credit option; empty if it was not asked for, or the type has none
	tables   []types.RouteTable // of the VPC; none if no VPC was given
}

// observe makes all calls at once, and shares them with all who ask at the same time. It reads the route
// tables of vpc unless that is empty.
func (c *Client) observe(ctx context.Context, id, vpc string) (observation, error) {
	var o observation
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		i, err := c.WatchInstance(gctx, id, DoubtAttempts)
		o.instance = i
		return err
	})
	g.Go(func() error {
		volumes, _, err := machineMemoryOf(c).lookups.attached.ask(gctx, id)
		if err != nil {
			return fmt.Errorf("describe the volumes of instance %s: %w", id, err)
		}
		o.volumes = slices.Clone(volumes)
		return nil
	})
	g.Go(func() (err error) {
		if vpc != "" {
			o.tables, err = c.sharedTables(gctx, vpc)
		}
		return err
	})
	err := g.Wait()
	o.findRoot()
	return o, err
}

// findRoot sets the root volume.
func (o *observation) findRoot() {
	root := o.machine().VolumeID
	for n, v := range o.volumes {
		if root == "" || sdk.ToString(v.VolumeId) == root {
			o.volume = &o.volumes[n]
			return
		}
	}
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
		m.RootVolumeGiB, m.RootVolume = sdk.ToInt32(o.volume.Size), performanceOf(*o.volume)
		m.RootVolumeKey = sdk.ToString(o.volume.KmsKeyId)
	}
	return m
}

// ObserveMachine returns how the machine differs from what is wanted. Machines of a cluster that are
// observed within a few seconds share their calls. The error is ErrNotFound if it certainly does not
// exist any more, and a ClaimedError if it is another's.
func (c *Client) ObserveMachine(ctx context.Context, id string, spec MachineSpec) (Machine, []finding.Finding, error) {
	o, err := c.observeTogether(ctx, spec, id)
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
	routes := spec.podRoutes()
	held := podTables(o.tables, routes)
	m.RouteTables = slices.DeleteFunc(leading(o.tables, routes, m.InterfaceID), func(table string) bool { return !slices.Contains(held, table) })
	if routes, err = c.withoutGone(ctx, routes, o.tables, m.InterfaceID); err != nil {
		return m, nil, fmt.Errorf("machine %s: %w", spec.Name, err)
	}
	spec.NetworkSubnets = routes.subnets
	return m, FindingsOf(c.machineRepairs(spec, o)), nil
}

// DescribeMachine returns the machine as EC2 now describes it, without its volume. The error is
// ErrNotFound if it certainly does not exist any more.
func (c *Client) DescribeMachine(ctx context.Context, id string) (Machine, error) {
	i, err := c.WatchInstance(ctx, id, DoubtAttempts)
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
	first, err := c.launchedWith(ctx, id)
	if err != nil && !errors.Is(err, errForeignData) { // somebody else may have replaced them
		return m, netip.Prefix{}, fmt.Errorf("instance %s: %w", id, err)
	}
	m.UserData = first.userData
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

// FindMachines returns the running machines of a cluster, by role and name: those of the given roles, or
// all if there are none.
func (c *Client) FindMachines(ctx context.Context, cluster string, roles ...Role) ([]Machine, error) {
	return c.findMachines(ctx, cluster, roles, types.InstanceStateNameRunning)
}

// FindAllMachines returns the machines of a cluster, also those that do not run, by role and name.
func (c *Client) FindAllMachines(ctx context.Context, cluster string) ([]Machine, error) {
	return c.findMachines(ctx, cluster, nil, types.InstanceStateNamePending, types.InstanceStateNameRunning, types.InstanceStateNameStopping, types.InstanceStateNameStopped)
}

func (c *Client) findMachines(ctx context.Context, cluster string, roles []Role, states ...types.InstanceStateName) ([]Machine, error) {
	var names, wanted []string
	for _, s := range states {
		names = append(names, string(s))
	}
	for _, r := range roles {
		wanted = append(wanted, string(r))
	}
	filters := []types.Filter{TagFilter(TagCluster, cluster), TagFilter(TagKind, kindMachine), filter("instance-state-name", names...)}
	if len(wanted) > 0 {
		filters = append(filters, TagFilter(TagRole, wanted...))
	}
	var out []Machine
	if err := c.eachInstance(ctx, func(i types.Instance) { out = append(out, machineOf(i)) }, filters...); err != nil {
		return nil, fmt.Errorf("look for the machines of cluster %s: %w", cluster, err)
	}
	slices.SortFunc(out, func(a, b Machine) int {
		return cmp.Or(strings.Compare(string(a.Role), string(b.Role)), strings.Compare(a.Name, b.Name))
	})
	return out, nil
}
