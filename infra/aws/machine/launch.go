package machine

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/route"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

// Launch makes sure that the machine has an instance: the one that an interrupted run left, or a
// new one with a first host key made from rand. It returns as soon as EC2 has accepted the launch;
// see Bring. The error is a ClaimedError if it belongs to another owner.
func Launch(ctx context.Context, c *aws.Client, spec Spec, rand io.Reader) (*Launching, error) {
	// The client token of the first round is the same in every run, so that a run after an interruption finds what was
	// launched. It may be spent: on a predecessor that EC2 no longer shows, or by somebody else in the account, who can compute
	// it. Nobody else knows the tokens of the further rounds.
	secret := ""
	for range launchRounds {
		all, err := instancesOf(ctx, c, spec.kind(), spec.Cluster, spec.Name)
		if err != nil {
			return nil, err
		}
		live, err := adoptable(ctx, c, spec, all)
		if err != nil {
			return nil, err
		}
		if live != nil {
			return resume(ctx, c, spec, *live)
		}
		token := aws.ClientToken(spec.Cluster, spec.kind(), spec.Name, spec.SubnetID, generation(all), secret)
		l, err := run(ctx, c, spec, token, rand)
		if !errors.Is(err, errSpentToken) {
			return l, err
		}
		unknown := make([]byte, secretBytes)
		if _, err := io.ReadFull(rand, unknown); err != nil {
			return nil, fmt.Errorf("machine %s: make a client token: %w", spec.Name, err)
		}
		secret = hex.EncodeToString(unknown)
	}
	return nil, fmt.Errorf("machine %s: launch: %w", spec.Name, errSpentToken)
}

// launchRounds is how many client tokens are tried. The secret ones are spent only if EC2 ends each instance at once.
const launchRounds = 4

// secretBytes is the length of the random part of a client token.
const secretBytes = 16

// errSpentToken says that the client token belongs to another launch, or to an instance that has ended.
var errSpentToken = errors.New("EC2 has ended each instance at once; run apply again in a minute")

// generation distinguishes this launch from earlier ones of the same machine.
func generation(all []types.Instance) string {
	var ids []string
	for _, i := range all {
		ids = append(ids, sdk.ToString(i.InstanceId))
	}
	return strings.Join(ids, ",")
}

// adoptable returns the live instance in all, nil if there is none. It first waits until instances
// that are shutting down have released the private address.
func adoptable(ctx context.Context, c *aws.Client, spec Spec, all []types.Instance) (*types.Instance, error) {
	var live []types.Instance
	for _, i := range all {
		switch aws.StateOf(i) {
		case types.InstanceStateNameTerminated:
		case types.InstanceStateNameShuttingDown:
			if err := awaitTerminated(ctx, c, sdk.ToString(i.InstanceId)); err != nil {
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
			return nil, fmt.Errorf("machine %s exists already as %s, and only one of the two is a Spot instance: terminate it, or give this cluster another name", spec.Name, m.ID)
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
func resume(ctx context.Context, c *aws.Client, spec Spec, i types.Instance) (*Launching, error) {
	take, err := spec.judge(i, false)
	if err != nil {
		return nil, err
	}
	if err := sameUserData(ctx, c, spec, sdk.ToString(i.InstanceId)); err != nil {
		return nil, fmt.Errorf("machine %s: %w", spec.Name, err)
	}
	if take {
		if err := c.TakeOver(ctx, spec.Claim, machineOf(i).tagged()); err != nil {
			return nil, fmt.Errorf("machine %s: %w", spec.Name, err)
		}
		if err := confirm(ctx, c, spec, sdk.ToString(i.InstanceId)); err != nil {
			return nil, err
		}
	}
	return &Launching{client: c, spec: spec, instance: i}, nil
}

// confirm reads back whose the instance is.
func confirm(ctx context.Context, c *aws.Client, spec Spec, id string) error {
	if spec.Claim.ID == "" {
		return nil
	}
	spec.Claim.Adopt = false // it has been written by now
	return aws.Raced(aws.ReadBack(ctx, func(ctx context.Context) error { return CheckClaim(ctx, c, id, spec) }))
}

// run launches one instance with a client token.
func run(ctx context.Context, c *aws.Client, spec Spec, token string, rand io.Reader) (*Launching, error) {
	img, err := findImage(ctx, c, spec.Image, spec.ImageFilter, spec.InstanceType)
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", spec.Name, err)
	}
	if spec.rootGiB() < img.MinimumGiB { // a larger volume than wanted could not shrink to it
		return nil, &invalid.Field{Field: "root_volume_size", Problem: "Smaller than the image",
			Err: fmt.Errorf("the root volume of %s has %d GiB, and that of AMI %s needs %d: set root_volume_size to %d or more", spec.Name, spec.rootGiB(), img.ID, img.MinimumGiB, img.MinimumGiB)}
	}
	keys, err := newLaunchKeys(rand)
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", spec.Name, err)
	}
	data, err := userData(spec, keys)
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", spec.Name, err)
	}
	tags := tagsOf(c, spec)
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
			VolumeType: types.VolumeType(root.Type), VolumeSize: sdk.Int32(spec.rootGiB()),
			Iops: aws.NonZero(root.WantedIOPS()), Throughput: aws.NonZero(root.ThroughputMiB),
			Encrypted: sdk.Bool(true), KmsKeyId: aws.NonZero(spec.RootVolumeKey), DeleteOnTermination: sdk.Bool(true),
		}}},
		MetadataOptions: &types.InstanceMetadataOptionsRequest{
			HttpTokens: types.HttpTokensStateRequired, HttpPutResponseHopLimit: sdk.Int32(metadataHops),
			HttpEndpoint: types.InstanceMetadataEndpointStateEnabled, HttpProtocolIpv6: types.InstanceMetadataProtocolStateDisabled,
			InstanceMetadataTags: types.InstanceMetadataTagsStateDisabled,
		},
		TagSpecifications: []types.TagSpecification{
			aws.TagSpecification(types.ResourceTypeInstance, tags),
			aws.TagSpecification(types.ResourceTypeVolume, tags),
			aws.TagSpecification(types.ResourceTypeNetworkInterface, tags),
		},
	}
	if spec.Spot == nil { // EC2 ends a Spot instance of a one-time request whatever is said
		in.InstanceInitiatedShutdownBehavior = types.ShutdownBehaviorStop
	}
	out, err := c.EC2.RunInstances(ctx, in, c.RetryUntilKnown())
	if aws.IsCode(err, "InvalidIPAddress.InUse") {
		out, err = runWhenFree(ctx, c, spec, in, err)
	}
	switch {
	case aws.IsCode(err, "IdempotentInstanceTerminated"):
		return nil, errSpentToken
	case aws.IsCode(err, "IdempotentParameterMismatch"):
		return byToken(ctx, c, spec, token)
	case err != nil:
		return nil, notLaunched(ctx, c, spec, img.ID, err)
	}
	if len(out.Instances) == 0 || aws.IsGone(out.Instances[0]) {
		return nil, errSpentToken
	}
	return &Launching{client: c, spec: spec, instance: out.Instances[0], launchKeys: keys.authorized()}, nil
}

// runWhenFree launches an instance whose private address EC2 says is in use. If no network interface
// has the address, EC2 only holds that of a predecessor for a while.
func runWhenFree(ctx context.Context, c *aws.Client, spec Spec, in *ec2.RunInstancesInput, inUse error) (*ec2.RunInstancesOutput, error) {
	found, err := aws.All(ctx, ec2.NewDescribeNetworkInterfacesPaginator(c.EC2, &ec2.DescribeNetworkInterfacesInput{Filters: []types.Filter{
		aws.Filter("subnet-id", spec.SubnetID), aws.Filter("addresses.private-ip-address", spec.PrivateIP.String()),
	}}), func(p *ec2.DescribeNetworkInterfacesOutput) []types.NetworkInterface { return p.NetworkInterfaces })
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find out who has %s: %w", spec.PrivateIP, err), inUse)
	}
	if len(found) > 0 {
		return nil, inUse
	}
	return c.EC2.RunInstances(ctx, in, c.RetryUntilFree())
}

// byToken finds the instance that an interrupted run launched with the same token and another first
// host key. If the instance is not this machine, the token is spent.
func byToken(ctx context.Context, c *aws.Client, spec Spec, token string) (*Launching, error) {
	var found *types.Instance
	seen := 0
	err := aws.Poll(ctx, "find the instance an earlier run launched", func(ctx context.Context) (bool, string, error) {
		err := c.EachInstance(ctx, func(i types.Instance) { found = &i }, aws.Filter("client-token", token))
		seen++
		return found != nil || seen >= aws.ConsistencyAttempts, "nothing yet", err
	})
	if err != nil {
		return nil, fmt.Errorf("machine %s: %w", spec.Name, err)
	}
	if found == nil || aws.IsGone(*found) {
		return nil, errSpentToken
	}
	// A token can be guessed. Somebody else in the account may have launched something with it.
	if m := machineOf(*found); m.Cluster != spec.Cluster || m.Name != spec.Name {
		return nil, errSpentToken
	}
	return resume(ctx, c, spec, *found)
}

// Launching is a machine being launched.
type Launching struct {
	client     *aws.Client
	spec       Spec
	instance   types.Instance
	launchKeys []string // first host keys, public; empty if an earlier run made them
	completed  bool
	tables     []string // the tables that got the route to its pods
}

// Machine returns the machine as far as it is known. Do not call it while Bring runs.
func (l *Launching) Machine() Machine { return machineOf(l.instance) }

// Bring waits until the machine runs and answers on SSH, applies the spec, and replaces the first
// host key. With an error it returns the machine as last seen; nothing of it if the error is a
// ClaimedError, since somebody else has taken over the instance meanwhile.
func (l *Launching) Bring(ctx context.Context, connect Connect) (Machine, error) {
	id := sdk.ToString(l.instance.InstanceId)
	if len(l.launchKeys) == 0 {
		if err := l.adopt(ctx, id); err != nil {
			if aws.IsClaimed(err) {
				return Machine{}, err
			}
			return machineOf(l.instance), err
		}
	}
	first := primary(l.instance)
	var key string
	g, gctx := parallel.WithContext(ctx)
	g.Go(func() error { return l.completeLaunch(gctx, id, first) })
	g.Go(func() error {
		if err := l.start(gctx, id); err != nil {
			return err
		}
		var err error
		key, err = replaceHostKey(gctx, l.client, l.spec, machineOf(l.instance), l.launchKeys, connect)
		return err
	})
	err := g.Wait()
	m := machineOf(l.instance)
	m.HostKey, m.RouteTables = key, l.tables
	if err == nil {
		err = UseDataVolume(ctx, l.client, m, l.spec, connect)
	}
	// What went wrong may be another one's doing.
	if lost := confirm(ctx, l.client, l.spec, id); err == nil || aws.IsClaimed(lost) {
		err = lost
	}
	if aws.IsClaimed(err) {
		return Machine{}, err
	}
	if err != nil {
		return m, fmt.Errorf("%s: %w", l.spec.describe(id), err)
	}
	return m, nil
}

// adopt brings an instance of an earlier run to what is wanted now.
func (l *Launching) adopt(ctx context.Context, id string) error {
	m, err := Converge(ctx, l.client, id, l.spec, nil)
	if err != nil {
		return err
	}
	l.tables = m.RouteTables
	i, err := l.client.WatchInstance(ctx, id, aws.ConsistencyAttempts)
	if err != nil {
		return fmt.Errorf("%s: %w", l.spec.describe(id), err)
	}
	l.instance = i
	l.completed = true
	return nil
}

// completeLaunch sets what RunInstances cannot set: the routing of pod traffic.
func (l *Launching) completeLaunch(ctx context.Context, instance string, n *types.InstanceNetworkInterface) error {
	if n == nil || l.completed || !l.spec.PodCIDR.IsValid() {
		return nil
	}
	id := sdk.ToString(n.NetworkInterfaceId)
	g, gctx := parallel.WithContext(ctx)
	g.Go(func() error { return setSourceDestCheck(gctx, l.client, id, false) })
	g.Go(func() error {
		tables, err := route.ConsistentTables(gctx, l.client, l.spec.toPods())
		if err != nil {
			return err
		}
		return l.route(gctx, tables, instance, id)
	})
	return g.Wait()
}

// route makes the routes to the machine's pods. It records the tables that got one, even if it
// failed for another table.
func (l *Launching) route(ctx context.Context, tables []types.RouteTable, instance, networkInterface string) error {
	var mu sync.Mutex
	g, gctx := parallel.WithContext(ctx)
	for _, r := range route.Repairs(l.client, l.spec.toPods(), tables, instance, networkInterface) {
		g.Go(func() error {
			err := r.Fix(gctx)
			if err == nil {
				mu.Lock()
				l.tables = append(l.tables, r.Table)
				mu.Unlock()
			}
			return err
		})
	}
	err := g.Wait()
	if err == nil {
		l.tables = route.TablesFor(tables, l.spec.toPods())
	}
	return err
}

// start waits until the instance runs and has its addresses.
func (l *Launching) start(ctx context.Context, id string) error {
	return aws.Poll(ctx, "wait until it runs", func(ctx context.Context) (bool, string, error) {
		i, err := l.client.WatchInstance(ctx, id, aws.ConsistencyAttempts)
		if err != nil {
			return false, "", aboutRootKey(l.spec, i, err)
		}
		switch aws.StateOf(i) {
		case types.InstanceStateNameStopped, types.InstanceStateNameStopping:
			return false, "", fmt.Errorf("it is %s instead of starting: %s", aws.StateOf(i), aws.StateReason(i))
		}
		l.instance = i
		ready := aws.StateOf(i) == types.InstanceStateNameRunning && (!l.spec.PublicIP || sdk.ToString(i.PublicIpAddress) != "")
		return ready, string(aws.StateOf(i)), nil
	})
}

// notLaunched says what could not be launched, and where if that matters.
func notLaunched(ctx context.Context, c *aws.Client, spec Spec, image string, err error) error {
	what := fmt.Sprintf("machine %s: launch %s with %s", spec.Name, spec.InstanceType, image)
	if aws.IsCode(err, "Unsupported", "InsufficientInstanceCapacity") {
		if zone := c.KnownZoneOfSubnet(ctx, spec.SubnetID); zone != "" {
			what += " in " + zone
		}
	}
	return fmt.Errorf("%s: %w", what, aboutSpot(aboutGroups(aboutPlacement(aboutProfile(c.WithZones(ctx, err, spec.InstanceType))))))
}
