package machine

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

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/route"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/volume"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

// instancesOf returns every instance with the machine's tags, including terminated ones that EC2
// still lists.
func instancesOf(ctx context.Context, c *aws.Client, kind, cluster, name string) ([]types.Instance, error) {
	found, _, err := memoryOf(c).lookups.machines.Ask(ctx, machineName{kind, cluster, name})
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
	data     *volume.Volume     // the wanted data volume; see observeData
	credits  string             // the credit option; empty if it was not asked for, or the type has none
	tables   []types.RouteTable // of the VPC; none if no VPC was given
}

// lookAt makes all calls at once, and shares them with all callers at the same time. It reads the route
// tables of vpc unless that is empty.
func lookAt(ctx context.Context, c *aws.Client, id, vpc string) (observation, error) {
	var o observation
	g, gctx := parallel.WithContext(ctx)
	g.Go(func() error {
		i, err := c.WatchInstance(gctx, id, aws.DoubtAttempts)
		o.instance = i
		return err
	})
	g.Go(func() error {
		volumes, _, err := memoryOf(c).lookups.attached.Ask(gctx, id)
		if err != nil {
			return fmt.Errorf("describe the volumes of instance %s: %w", id, err)
		}
		o.volumes = slices.Clone(volumes)
		return nil
	})
	g.Go(func() (err error) {
		if vpc != "" {
			o.tables, err = route.SharedTables(gctx, c, vpc)
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
func observeData(ctx context.Context, c *aws.Client, spec Spec, o *observation) error {
	if spec.DataVolume == nil {
		return nil
	}
	for _, v := range o.volumes {
		if sdk.ToString(v.VolumeId) == spec.DataVolume.ID {
			found := volume.Of(v)
			o.data = &found
			return nil
		}
	}
	v, err := volume.Find(ctx, c, spec.DataVolume.ID)
	if errors.Is(err, aws.ErrNotFound) {
		return nil
	}
	o.data = &v
	return err
}

func (o observation) machine() Machine {
	m := machineOf(o.instance)
	if o.volume != nil {
		m.RootVolumeGiB, m.RootVolume = sdk.ToInt32(o.volume.Size), volume.PerformanceOf(*o.volume)
		m.RootVolumeKey = sdk.ToString(o.volume.KmsKeyId)
	}
	return m
}

// Observe returns how the machine differs from what is wanted. Machines of a cluster that are
// observed within a few seconds share their calls. The error is ErrNotFound if it certainly does not
// exist any more, a ClaimedError if it belongs to another owner, and a HostKeyTagError if its tags have
// another host key than the pinned one.
func Observe(ctx context.Context, c *aws.Client, id string, spec Spec) (Machine, []finding.Finding, error) {
	o, err := observeTogether(ctx, c, spec, id)
	if err != nil {
		return Machine{}, nil, fmt.Errorf("machine %s: %w", spec.Name, err)
	}
	if _, err := spec.judge(o.instance, true); err != nil {
		return Machine{}, nil, err
	}
	if err := observeData(ctx, c, spec, &o); err != nil {
		return Machine{}, nil, fmt.Errorf("machine %s: %w", spec.Name, err)
	}
	m := o.machine()
	if m.HostKey = cmp.Or(m.HostKey, spec.HostKey); spec.HostKey != "" && m.HostKey != spec.HostKey {
		return Machine{}, nil, &HostKeyTagError{Machine: spec.Name, ID: id, Tag: m.HostKey, Pinned: spec.HostKey}
	}
	m.data = o.data
	// In other tables, a route that leads to the machine belongs to others.
	routes := spec.toPods()
	held := route.TablesFor(o.tables, routes)
	m.RouteTables = slices.DeleteFunc(route.Leading(o.tables, routes, m.InterfaceID), func(table string) bool { return !slices.Contains(held, table) })
	if routes, err = route.WithoutGone(ctx, c, routes, o.tables, m.InterfaceID); err != nil {
		return m, nil, fmt.Errorf("machine %s: %w", spec.Name, err)
	}
	spec.NetworkSubnets = routes.SubnetIDs
	return m, aws.FindingsOf(repairsOf(c, spec, o)), nil
}

// Describe returns the machine as EC2 now describes it, without its volume. The error is
// ErrNotFound if it certainly does not exist any more.
func Describe(ctx context.Context, c *aws.Client, id string) (Machine, error) {
	i, err := c.WatchInstance(ctx, id, aws.DoubtAttempts)
	return machineOf(i), err
}

// routedVPC returns the VPC whose route tables must be read; empty for a machine without pods.
func routedVPC(s Spec) string {
	if !s.PodCIDR.IsValid() && !s.RemovePodCIDR.IsValid() {
		return ""
	}
	return s.VPCID
}

// Find returns a machine by its instance id, with its pod network, for an import. The host key is in a tag, which others
// may have written: it must have the given fingerprint ("SHA256:..."), or without one the fingerprint that the machine
// itself has printed on its console. Otherwise the error is a HostKeyDoubt.
func Find(ctx context.Context, c *aws.Client, id, hostKey string) (Machine, netip.Prefix, error) {
	o, err := lookAt(ctx, c, id, "")
	if err != nil {
		return Machine{}, netip.Prefix{}, err
	}
	m := o.machine()
	if m.Cluster == "" || m.Name == "" || m.HostKey == "" {
		return m, netip.Prefix{}, fmt.Errorf("instance %s was not made by this provider, or its creation never ended: the tags %s, %s and %s say which machine it is and which host key it has",
			id, aws.TagCluster, aws.TagResource, aws.TagHostKey)
	}
	if err := checkHostKey(ctx, c, m, hostKey); err != nil {
		return m, netip.Prefix{}, err
	}
	first, err := launchedWith(ctx, c, id)
	if err != nil && !errors.Is(err, errForeignData) { // somebody else may have replaced them
		return m, netip.Prefix{}, fmt.Errorf("instance %s: %w", id, err)
	}
	m.UserData = first.userData
	for _, attached := range o.volumes {
		if v := volume.Of(attached); v.Tags[aws.TagKind] == aws.KindVolume && v.Cluster == m.Cluster && v.Tags[aws.TagMountPoint] != "" {
			m.Data = &DataVolume{ID: v.ID, MountPoint: v.Tags[aws.TagMountPoint]}
		}
	}
	tables, err := route.Tables(ctx, c, m.VPCID)
	if err != nil {
		return m, netip.Prefix{}, err
	}
	return m, podsOf(m, tables), nil
}

// podsOf returns the network of a machine's pods, by the routes that lead to it.
func podsOf(m Machine, tables []types.RouteTable) netip.Prefix {
	for _, t := range tables {
		for _, r := range t.Routes {
			pods, err := netip.ParsePrefix(sdk.ToString(r.DestinationCidrBlock))
			if err == nil && sdk.ToString(r.NetworkInterfaceId) == m.InterfaceID {
				return pods
			}
		}
	}
	return netip.Prefix{}
}

// Pods returns the networks of the pods of machines in one VPC, by the machines' names.
func Pods(ctx context.Context, c *aws.Client, machines []Machine) (map[string]netip.Prefix, error) {
	out := map[string]netip.Prefix{}
	if len(machines) == 0 {
		return out, nil
	}
	tables, err := route.Tables(ctx, c, machines[0].VPCID)
	for _, m := range machines {
		if pods := podsOf(m, tables); pods.IsValid() {
			out[m.Name] = pods
		}
	}
	return out, err
}

// Named returns the id of the instance that is a machine of a cluster, by its tags. Two such instances are an error:
// tags can be copied.
func Named(ctx context.Context, c *aws.Client, cluster, name string) (string, error) {
	found, err := instancesOf(ctx, c, aws.KindMachine, cluster, name)
	if err != nil {
		return "", err
	}
	var ids []string
	for _, i := range found {
		if !aws.IsGone(i) {
			ids = append(ids, sdk.ToString(i.InstanceId))
		}
	}
	return aws.Only("machine "+name+" of cluster "+cluster, ids)
}

// FindRunning returns the running machines of a cluster, by role and name: those of the given roles, or
// all if there are none.
func FindRunning(ctx context.Context, c *aws.Client, cluster string, roles ...aws.MachineRole) ([]Machine, error) {
	return findIn(ctx, c, cluster, roles, types.InstanceStateNameRunning)
}

// FindAll returns the machines of a cluster, also those that do not run, by role and name.
func FindAll(ctx context.Context, c *aws.Client, cluster string) ([]Machine, error) {
	return findIn(ctx, c, cluster, nil, types.InstanceStateNamePending, types.InstanceStateNameRunning, types.InstanceStateNameStopping, types.InstanceStateNameStopped)
}

func findIn(ctx context.Context, c *aws.Client, cluster string, roles []aws.MachineRole, states ...types.InstanceStateName) ([]Machine, error) {
	var names, wanted []string
	for _, s := range states {
		names = append(names, string(s))
	}
	for _, r := range roles {
		wanted = append(wanted, string(r))
	}
	filters := []types.Filter{aws.TagFilter(aws.TagCluster, cluster), aws.TagFilter(aws.TagKind, aws.KindMachine), aws.Filter("instance-state-name", names...)}
	if len(wanted) > 0 {
		filters = append(filters, aws.TagFilter(aws.TagRole, wanted...))
	}
	var out []Machine
	if err := c.EachInstance(ctx, func(i types.Instance) { out = append(out, machineOf(i)) }, filters...); err != nil {
		return nil, fmt.Errorf("look for the machines of cluster %s: %w", cluster, err)
	}
	slices.SortFunc(out, func(a, b Machine) int {
		return cmp.Or(strings.Compare(string(a.Role), string(b.Role)), strings.Compare(a.Name, b.Name))
	})
	return out, nil
}
