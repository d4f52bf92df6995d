package aws

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/sync/errgroup"
)

// LaunchMachine makes sure that the machine has an instance: the one that an interrupted run left,
// or a new one with a first host key made from rand. It returns as soon as EC2 has accepted the
// launch; see Bring. The error is a ClaimedError if there is one that is another's.
func (c *Client) LaunchMachine(ctx context.Context, spec MachineSpec, rand io.Reader) (*Launch, error) {
	// Another round is needed only if the client token was used for an instance that does not exist
	// any more, and that EC2 no longer shows.
	for round := range launchRounds {
		all, err := c.instances(ctx, spec.Cluster, spec.Name)
		if err != nil {
			return nil, err
		}
		live, err := c.adoptable(ctx, spec, all)
		if err != nil {
			return nil, err
		}
		if live != nil {
			return c.resume(ctx, spec, *live)
		}
		l, err := c.run(ctx, spec, generation(all, round), rand)
		if !errors.Is(err, errSpentToken) {
			return l, err
		}
	}
	return nil, fmt.Errorf("machine %s: launch: %w", spec.Name, errSpentToken)
}

// launchRounds is how many client tokens are tried. Each of them may be spent on a predecessor in
// the same subnet that EC2 no longer shows, but still remembers.
const launchRounds = 20

// errSpentToken says that the client token belongs to an earlier launch.
var errSpentToken = errors.New("earlier launches of the same machine are still remembered by EC2; run apply again in a minute")

// generation distinguishes this launch from earlier ones of the same machine.
func generation(all []types.Instance, round int) string {
	var ids []string
	for _, i := range all {
		ids = append(ids, sdk.ToString(i.InstanceId))
	}
	return fmt.Sprintf("%s/%d", strings.Join(ids, ","), round)
}

// adoptable returns the live instance in all, nil if there is none. It first waits until instances
// that are shutting down have released the private address.
func (c *Client) adoptable(ctx context.Context, spec MachineSpec, all []types.Instance) (*types.Instance, error) {
	var live []types.Instance
	for _, i := range all {
		switch StateOf(i) {
		case types.InstanceStateNameTerminated:
		case types.InstanceStateNameShuttingDown:
			if err := c.awaitTerminated(ctx, sdk.ToString(i.InstanceId)); err != nil {
				return nil, fmt.Errorf("machine %s: its predecessor %s: %w", spec.Name, sdk.ToString(i.InstanceId), err)
			}
		default:
			if _, err := spec.judge(i, false); err != nil {
				return nil, err
			}
			live = append(live, i)
		}
	}
	switch len(live) {
	case 0:
		return nil, nil
	case 1:
		m := machineOf(live[0])
		if m.SubnetID != spec.SubnetID || spec.PrivateIP.IsValid() && m.PrivateIP != spec.PrivateIP ||
			m.Role != "" && m.Role != spec.Role || m.User != "" && m.User != spec.User {
			return nil, fmt.Errorf("machine %s exists already as %s (%s, %s in %s, user %s), made by another configuration or an earlier run of this one: "+
				"import it, terminate it, or give this cluster another name",
				spec.Name, m.ID, m.Role, m.PrivateIP, m.SubnetID, m.User)
		}
		if m.Spot != (spec.Spot != nil) {
			return nil, fmt.Errorf("machine %s exists already as %s, and one of both is a Spot instance: terminate it, or give this cluster another name", spec.Name, m.ID)
		}
		return &live[0], nil
	}
	var ids []string
	for _, i := range live {
		ids = append(ids, sdk.ToString(i.InstanceId))
	}
	return nil, fmt.Errorf("machine %s exists %d times (%s): terminate all but one, or give this cluster another name",
		spec.Name, len(live), strings.Join(ids, ", "))
}

// resume continues with an instance that an interrupted create has left, or that is to be adopted.
// It is claimed before anything else is done to it.
func (c *Client) resume(ctx context.Context, spec MachineSpec, i types.Instance) (*Launch, error) {
	take, err := spec.judge(i, false)
	if err != nil {
		return nil, err
	}
	if err := c.sameUserData(ctx, spec, sdk.ToString(i.InstanceId)); err != nil {
		return nil, fmt.Errorf("machine %s: %w", spec.Name, err)
	}
	if take {
		if err := c.TakeOver(ctx, spec.Claim, machineOf(i).tagged()); err != nil {
			return nil, fmt.Errorf("machine %s: %w", spec.Name, err)
		}
		if err := c.confirmMachine(ctx, spec, sdk.ToString(i.InstanceId)); err != nil {
			return nil, err
		}
	}
	return &Launch{client: c, spec: spec, instance: i}, nil
}

// confirmMachine reads back whose the instance is.
func (c *Client) confirmMachine(ctx context.Context, spec MachineSpec, id string) error {
	if spec.Claim.ID == "" {
		return nil
	}
	spec.Claim.Adopt = false // it has been written by now
	return Raced(ReadBack(ctx, func(ctx context.Context) error { return c.CheckMachine(ctx, id, spec) }))
}

// run launches one instance.
func (c *Client) run(ctx context.Context, spec MachineSpec, generation string, rand io.Reader) (*Launch, error) {
	img, err := c.image(ctx, spec.Image, spec.ImageFilter, spec.InstanceType)
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", spec.Name, err)
	}
	key, err := newHostKey(rand)
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", spec.Name, err)
	}
	data, err := userData(spec, key)
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", spec.Name, err)
	}
	token := clientToken(spec.Cluster, kindMachine, spec.Name, spec.SubnetID, generation)
	tags := c.machineTags(spec)
	nic := types.InstanceNetworkInterfaceSpecification{
		DeviceIndex: sdk.Int32(0), SubnetId: &spec.SubnetID, Groups: spec.groups(),
		AssociatePublicIpAddress: &spec.PublicIP, DeleteOnTermination: sdk.Bool(true),
	}
	if spec.PrivateIP.IsValid() {
		nic.PrivateIpAddress = sdk.String(spec.PrivateIP.String())
	}
	root := spec.rootVolume()
	in := &ec2.RunInstancesInput{
		ClientToken:  &token,
		ImageId:      &img.ID,
		InstanceType: types.InstanceType(spec.InstanceType),
		MinCount:     sdk.Int32(1), MaxCount: sdk.Int32(1),
		UserData:              sdk.String(base64.StdEncoding.EncodeToString(data)),
		Placement:             placementSpec(spec.PlacementGroup),
		CreditSpecification:   creditsSpec(spec.CPUCredits),
		InstanceMarketOptions: marketSpec(spec.Spot),
		IamInstanceProfile:    profileSpec(spec.InstanceProfile),
		NetworkInterfaces:     []types.InstanceNetworkInterfaceSpecification{nic},
		BlockDeviceMappings: []types.BlockDeviceMapping{{DeviceName: &img.RootDevice, Ebs: &types.EbsBlockDevice{
			VolumeType: types.VolumeType(root.Type), VolumeSize: sdk.Int32(max(spec.RootVolumeGiB, img.MinimumGiB)),
			Iops: nonZero(root.chosenIOPS()), Throughput: nonZero(root.ThroughputMiB),
			Encrypted: sdk.Bool(true), KmsKeyId: nonZero(spec.RootVolumeKey), DeleteOnTermination: sdk.Bool(true),
		}}},
		MetadataOptions: &types.InstanceMetadataOptionsRequest{
			HttpTokens: types.HttpTokensStateRequired, HttpPutResponseHopLimit: sdk.Int32(1),
			HttpEndpoint: types.InstanceMetadataEndpointStateEnabled,
		},
		TagSpecifications: []types.TagSpecification{
			TagSpecification(types.ResourceTypeInstance, tags),
			TagSpecification(types.ResourceTypeVolume, tags),
			TagSpecification(types.ResourceTypeNetworkInterface, tags),
		},
	}
	out, err := c.EC2.RunInstances(ctx, in, c.RetryUntilKnown())
	if IsCode(err, "InvalidIPAddress.InUse") {
		out, err = c.runWhenFree(ctx, spec, in, err)
	}
	switch {
	case IsCode(err, "IdempotentInstanceTerminated"):
		return nil, errSpentToken
	case IsCode(err, "IdempotentParameterMismatch"):
		return c.byToken(ctx, spec, token)
	case err != nil:
		return nil, c.notLaunched(ctx, spec, img.ID, err)
	}
	if len(out.Instances) == 0 || isGone(out.Instances[0]) {
		return nil, errSpentToken
	}
	return &Launch{client: c, spec: spec, instance: out.Instances[0], launchKey: key.authorized}, nil
}

// runWhenFree launches an instance whose private address EC2 says is in use. If no network interface
// has the address, EC2 only holds that of a predecessor for a while.
func (c *Client) runWhenFree(ctx context.Context, spec MachineSpec, in *ec2.RunInstancesInput, inUse error) (*ec2.RunInstancesOutput, error) {
	found, err := c.EC2.DescribeNetworkInterfaces(ctx, &ec2.DescribeNetworkInterfacesInput{Filters: []types.Filter{
		filter("subnet-id", spec.SubnetID), filter("addresses.private-ip-address", spec.PrivateIP.String()),
	}})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find out who has %s: %w", spec.PrivateIP, err), inUse)
	}
	if len(found.NetworkInterfaces) > 0 {
		return nil, inUse
	}
	return c.EC2.RunInstances(ctx, in, c.retryUntilFree())
}

// byToken finds the instance that an interrupted run launched with the same token and another first
// host key.
func (c *Client) byToken(ctx context.Context, spec MachineSpec, token string) (*Launch, error) {
	var found *types.Instance
	seen := 0
	err := Poll(ctx, "find the instance an earlier run launched", func(ctx context.Context) (bool, string, error) {
		out, err := c.EC2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: []types.Filter{filter("client-token", token)}})
		if err != nil {
			return false, "", err
		}
		for _, r := range out.Reservations {
			for _, i := range r.Instances {
				found = &i
				return true, "", nil
			}
		}
		seen++
		return seen >= SettleAttempts, "nothing yet", nil
	})
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", spec.Name, err)
	}
	if found == nil || isGone(*found) {
		return nil, errSpentToken
	}
	return c.resume(ctx, spec, *found)
}

// Launch is a machine being launched.
type Launch struct {
	client    *Client
	spec      MachineSpec
	instance  types.Instance
	launchKey string // first host key, public; empty if an earlier run made it
	settled   bool
	tables    []string // the tables that got the route to its pods
}

// Machine returns the machine as far as it is known. Do not call it while Bring runs.
func (l *Launch) Machine() Machine { return machineOf(l.instance) }

// Bring waits until the machine runs and answers on SSH, applies the spec, and replaces the first
// host key. With an error it returns the machine as last seen; nothing of it if the error is a
// ClaimedError, since somebody else has taken over the instance meanwhile.
func (l *Launch) Bring(ctx context.Context, connect Connect) (Machine, error) {
	id := sdk.ToString(l.instance.InstanceId)
	if l.launchKey == "" {
		if err := l.adopt(ctx, id); err != nil {
			if IsClaimed(err) {
				return Machine{}, err
			}
			return machineOf(l.instance), err
		}
	}
	first := primary(l.instance)
	var key string
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.settle(gctx, id, first) })
	g.Go(func() error {
		if err := l.start(gctx, id); err != nil {
			return err
		}
		var err error
		key, err = l.client.replaceHostKey(gctx, l.spec, machineOf(l.instance), l.launchKey, connect)
		return err
	})
	err := g.Wait()
	m := machineOf(l.instance)
	m.HostKey, m.RouteTables = key, l.tables
	if err == nil {
		err = l.client.UseDataVolume(ctx, m, l.spec, connect)
	}
	// What went wrong may be another one's doing.
	if lost := l.client.confirmMachine(ctx, l.spec, id); err == nil || IsClaimed(lost) {
		err = lost
	}
	if IsClaimed(err) {
		return Machine{}, err
	}
	if err != nil {
		return m, fmt.Errorf("%s: %w", l.spec.describe(id), err)
	}
	return m, nil
}

// adopt brings an instance of an earlier run to what is wanted now.
func (l *Launch) adopt(ctx context.Context, id string) error {
	m, err := l.client.ConvergeMachine(ctx, id, l.spec, nil)
	if err != nil {
		return err
	}
	l.tables = m.RouteTables
	i, err := l.client.WatchInstance(ctx, id, SettleAttempts)
	if err != nil {
		return fmt.Errorf("%s: %w", l.spec.describe(id), err)
	}
	l.instance = i
	l.settled = true
	return nil
}

// settle sets what RunInstances cannot set: the routing of pod traffic.
func (l *Launch) settle(ctx context.Context, instance string, n *types.InstanceNetworkInterface) error {
	if n == nil || l.settled || !l.spec.PodCIDR.IsValid() {
		return nil
	}
	id := sdk.ToString(n.NetworkInterfaceId)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return l.client.setSourceDestCheck(gctx, id, false) })
	g.Go(func() error {
		tables, err := l.client.settledTables(gctx, l.spec.podRoutes())
		if err != nil {
			return err
		}
		return l.route(gctx, tables, instance, id)
	})
	return g.Wait()
}

// route makes the routes to the machine's pods. It records the tables that got one, even if it
// failed for another table.
func (l *Launch) route(ctx context.Context, tables []types.RouteTable, instance, networkInterface string) error {
	var mu sync.Mutex
	g, gctx := errgroup.WithContext(ctx)
	for _, r := range l.client.routeRepairs(l.spec.podRoutes(), tables, instance, networkInterface) {
		g.Go(func() error {
			err := r.Fix(gctx)
			if err == nil {
				mu.Lock()
				l.tables = append(l.tables, r.table)
				mu.Unlock()
			}
			return err
		})
	}
	err := g.Wait()
	if err == nil {
		l.tables = podTables(tables, l.spec.podRoutes())
	}
	return err
}

// start waits until the instance runs and has its addresses.
func (l *Launch) start(ctx context.Context, id string) error {
	return Poll(ctx, "wait until it runs", func(ctx context.Context) (bool, string, error) {
		i, err := l.client.WatchInstance(ctx, id, SettleAttempts)
		if err != nil {
			return false, "", aboutRootKey(l.spec, i, err)
		}
		switch StateOf(i) {
		case types.InstanceStateNameStopped, types.InstanceStateNameStopping:
			return false, "", fmt.Errorf("it is %s instead of starting: %s", StateOf(i), StateReason(i))
		}
		l.instance = i
		ready := StateOf(i) == types.InstanceStateNameRunning && (!l.spec.PublicIP || sdk.ToString(i.PublicIpAddress) != "")
		return ready, string(StateOf(i)), nil
	})
}

// notLaunched says what could not be launched, and where if that matters.
func (c *Client) notLaunched(ctx context.Context, spec MachineSpec, image string, err error) error {
	what := fmt.Sprintf("machine %s: launch %s with %s", spec.Name, spec.InstanceType, image)
	if IsCode(err, "Unsupported", "InsufficientInstanceCapacity") {
		if zone := c.KnownZoneOfSubnet(ctx, spec.SubnetID); zone != "" {
			what += " in " + zone
		}
	}
	return fmt.Errorf("%s: %w", what, aboutSpot(aboutPlacement(aboutProfile(c.withZones(ctx, err, spec.InstanceType)))))
}
