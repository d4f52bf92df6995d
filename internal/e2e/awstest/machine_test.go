package awstest

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/sync/errgroup"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// made launches machines in parallel.
func made(ctx context.Context, t *testing.T, c *infraaws.Client, connect machine.Connect, specs []machine.Spec) []machine.Machine {
	t.Helper()
	out := make([]machine.Machine, len(specs))
	g, gctx := errgroup.WithContext(ctx)
	for i, s := range specs {
		g.Go(func() (err error) {
			out[i], err = make1(gctx, c, connect, s)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for i, s := range specs {
		asWanted(ctx, t, c, out[i].ID, s)
	}
	return out
}

func make1(ctx context.Context, c *infraaws.Client, connect machine.Connect, s machine.Spec) (machine.Machine, error) {
	l, err := machine.Launch(ctx, c, s, random)
	if err != nil {
		return machine.Machine{}, err
	}
	return l.Bring(ctx, connect)
}

func asWanted(ctx context.Context, t *testing.T, c *infraaws.Client, id string, s machine.Spec) {
	t.Helper()
	_, drift, err := machine.Observe(ctx, c, id, s)
	if err != nil {
		t.Fatal(err)
	}
	if len(drift) > 0 {
		t.Fatalf("machine %s differs from what was just made: %s", s.Name, finding.Words(drift))
	}
}

func TestMachinesLifecycle(t *testing.T) {
	t.Parallel()
	a, ctx, w := newAccount(t), deadline(t), &wire{}
	c := a.client(w)
	ssh := a.newMachines(t, a.client(&wire{}))
	n := ensured(ctx, t, c, networkSpec())
	specs := machineSpecs(n)
	before := len(w.calls)
	all := made(ctx, t, c, ssh.on(w), specs)
	t.Logf("%d machines made and observed with %d calls: %v", len(all), len(w.calls)-before, counts(w.calls[before:]))

	for i, m := range all {
		if m.PrivateIP != specs[i].PrivateIP || !m.PublicIP.IsValid() || m.User != "admin" && m.User != "" {
			t.Errorf("%+v", m)
		}
		if got := ssh.HostKey(m.ID); got != m.HostKey {
			t.Errorf("%s uses host key %s, on record is %s", specs[i].Name, got, m.HostKey)
		}
	}
	checkLaunch(ctx, t, c, all[3])

	// A run without its state finds everything again and changes nothing.
	w2 := &wire{}
	again := made(ctx, t, a.client(w2), ssh.on(w2), specs)
	for i := range again {
		if again[i].ID != all[i].ID || again[i].HostKey != all[i].HostKey {
			t.Errorf("%s: %s with %s became %s with %s", specs[i].Name, all[i].ID, all[i].HostKey, again[i].ID, again[i].HostKey)
		}
	}
	if did := slices.DeleteFunc(w2.changes(), func(s string) bool { return s == "ssh" }); len(did) > 0 {
		t.Errorf("finding everything again changed something: %v", did)
	}

	g, gctx := errgroup.WithContext(ctx)
	for i, m := range all {
		g.Go(func() error { return machine.Delete(gctx, c, m.ID, specs[i]) })
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for i, m := range all {
		if _, _, err := machine.Observe(ctx, c, m.ID, specs[i]); !errors.Is(err, infraaws.ErrNotFound) {
			t.Errorf("%s after its deletion: %v", specs[i].Name, err)
		}
		if err := machine.Delete(ctx, c, m.ID, specs[i]); err != nil {
			t.Errorf("deleting %s again: %v", specs[i].Name, err)
		}
	}
	if err := network.Delete(ctx, c, networkSpec()); err != nil {
		t.Fatal(err)
	}
	a.Empty()

	// The same names become new instances; old idempotency tokens must not return the old ones.
	n = ensured(ctx, t, c, networkSpec())
	for i, m := range made(ctx, t, c, ssh.on(w), machineSpecs(n)) {
		if m.ID == all[i].ID {
			t.Errorf("%s is the terminated %s", m.Name, m.ID)
		}
	}
}

// checkLaunch checks a worker against the requirements for instances in DESIGN.
func checkLaunch(ctx context.Context, t *testing.T, c *infraaws.Client, m machine.Machine) {
	t.Helper()
	out, err := c.EC2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{m.ID}})
	if err != nil {
		t.Fatal(err)
	}
	i := out.Reservations[0].Instances[0]
	if o := i.MetadataOptions; o.HttpTokens != types.HttpTokensStateRequired || sdk.ToInt32(o.HttpPutResponseHopLimit) != 1 {
		t.Errorf("metadata options %+v", o)
	}
	if sdk.ToBool(i.NetworkInterfaces[0].SourceDestCheck) {
		t.Error("source/destination check is on")
	}
	volumes, err := c.EC2.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{Filters: []types.Filter{{Name: sdk.String("attachment.instance-id"), Values: []string{m.ID}}}})
	if err != nil {
		t.Fatal(err)
	}
	v := volumes.Volumes[0]
	if !sdk.ToBool(v.Encrypted) || v.VolumeType != types.VolumeTypeGp3 || sdk.ToInt32(v.Size) != 20 {
		t.Errorf("root volume: encrypted %v, %s, %d GiB", sdk.ToBool(v.Encrypted), v.VolumeType, sdk.ToInt32(v.Size))
	}
	for what, tags := range map[string][]types.Tag{"instance": i.Tags, "volume": v.Tags} {
		got := map[string]string{}
		for _, tag := range tags {
			got[sdk.ToString(tag.Key)] = sdk.ToString(tag.Value)
		}
		for k, want := range map[string]string{
			"Name": "demo-worker-0", infraaws.TagCluster: "demo", "kubernetes.io/cluster/demo": "owned", "team": "lab", infraaws.TagRole: "worker",
		} {
			if got[k] != want {
				t.Errorf("tag %s of the %s is %q, wanted %q", k, what, got[k], want)
			}
		}
	}
}

func TestMachineDrift(t *testing.T) {
	t.Parallel()
	a, ctx := newAccount(t), deadline(t)
	c := a.client(&wire{})
	ssh := a.newMachines(t, c)
	n := ensured(ctx, t, c, networkSpec())
	spec := machineSpecs(n)[3] // worker-0
	m := made(ctx, t, c, ssh.on(&wire{}), []machine.Spec{spec})[0]
	api, table := c.EC2, n.Subnets[0].RouteTableID
	if !slices.Equal(m.RouteTables, []string{table}) {
		t.Errorf("route tables %v, wanted %s", m.RouteTables, table)
	}
	spec.RoutedTables = m.RouteTables
	for _, test := range []struct {
		name   string
		damage func() error
		words  string
	}{{
		"stopped", func() error {
			_, err := api.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: []string{m.ID}})
			return errors.Join(err, ec2.NewInstanceStoppedWaiter(api, func(o *ec2.InstanceStoppedWaiterOptions) {
				o.MinDelay, o.MaxDelay = 50*time.Millisecond, 100*time.Millisecond
			}).
				Wait(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{m.ID}}, time.Minute))
		}, "instance: found stopped, wanted running",
	}, {
		"source/destination check", func() error {
			_, err := api.ModifyNetworkInterfaceAttribute(ctx, &ec2.ModifyNetworkInterfaceAttributeInput{
				NetworkInterfaceId: &m.InterfaceID, SourceDestCheck: &types.AttributeBooleanValue{Value: sdk.Bool(true)},
			})
			return err
		}, "source/destination check: found on, wanted off",
	}, {
		"security group", func() error {
			_, err := api.ModifyNetworkInterfaceAttribute(ctx, &ec2.ModifyNetworkInterfaceAttributeInput{
				NetworkInterfaceId: &m.InterfaceID, Groups: []string{n.SecurityGroups[infraaws.RoleLoadBalancer]},
			})
			return err
		}, "security groups: found " + n.SecurityGroups[infraaws.RoleLoadBalancer] + ", wanted " + strings.Join(slices.Sorted(slices.Values(spec.SecurityGroupIDs)), ", "),
	}, {
		"metadata service", func() error {
			_, err := api.ModifyInstanceMetadataOptions(ctx, &ec2.ModifyInstanceMetadataOptionsInput{
				InstanceId: &m.ID, HttpTokens: types.HttpTokensStateOptional, HttpPutResponseHopLimit: sdk.Int32(2),
			})
			return err
		}, "metadata service: tokens are optional, wanted required, hop limit is 2, wanted 1",
	}, {
		"route deleted", func() error {
			_, err := api.DeleteRoute(ctx, &ec2.DeleteRouteInput{RouteTableId: &table, DestinationCidrBlock: sdk.String("10.200.0.0/24")})
			return err
		}, "route 10.200.0.0/24 in " + table + ": missing, wanted " + m.InterfaceID,
	}, {
		"route turned", func() error {
			_, err := api.ReplaceRoute(ctx, &ec2.ReplaceRouteInput{
				RouteTableId: &table, DestinationCidrBlock: sdk.String("10.200.0.0/24"), GatewayId: &n.InternetGatewayID,
			})
			return err
		}, "route 10.200.0.0/24 in " + table + ": found " + n.InternetGatewayID + ", wanted " + m.InterfaceID,
	}, {
		"tag", func() error {
			_, err := api.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{m.ID}, Tags: []types.Tag{{Key: sdk.String("Name"), Value: sdk.String("mine")}}})
			return err
		}, `tag Name: found "mine", wanted "demo-worker-0"`,
	}, {
		"instance type", func() error {
			if _, err := api.StopInstances(ctx, &ec2.StopInstancesInput{InstanceIds: []string{m.ID}}); err != nil {
				return err
			}
			if err := ec2.NewInstanceStoppedWaiter(api, func(o *ec2.InstanceStoppedWaiterOptions) {
				o.MinDelay, o.MaxDelay = 50*time.Millisecond, 100*time.Millisecond
			}).
				Wait(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{m.ID}}, time.Minute); err != nil {
				return err
			}
			if _, err := api.ModifyInstanceAttribute(ctx, &ec2.ModifyInstanceAttributeInput{InstanceId: &m.ID, InstanceType: &types.AttributeValue{Value: sdk.String("t3.large")}}); err != nil {
				return err
			}
			_, err := api.StartInstances(ctx, &ec2.StartInstancesInput{InstanceIds: []string{m.ID}})
			return errors.Join(err, ec2.NewInstanceRunningWaiter(api, func(o *ec2.InstanceRunningWaiterOptions) {
				o.MinDelay, o.MaxDelay = 50*time.Millisecond, 100*time.Millisecond
			}).
				Wait(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{m.ID}}, time.Minute))
		}, "instance type: found t3.large, wanted t3.small",
	}} {
		t.Run(test.name, func(t *testing.T) {
			if err := test.damage(); err != nil {
				t.Fatal(err)
			}
			_, drift, err := machine.Observe(ctx, c, m.ID, spec)
			if err != nil {
				t.Fatal(err)
			}
			if got := finding.Words(drift); got != test.words {
				t.Errorf("drift %q, wanted %q", got, test.words)
			}
			if _, err := machine.Converge(ctx, c, m.ID, spec, nil); err != nil {
				t.Fatal(err)
			}
			asWanted(ctx, t, c, m.ID, spec)
		})
	}

	t.Run("a larger volume", func(t *testing.T) {
		spec.RootVolumeGiB = 40
		if _, err := machine.Converge(ctx, c, m.ID, spec, nil); err != nil {
			t.Fatal(err)
		}
		asWanted(ctx, t, c, m.ID, spec)
	})
	t.Run("other pods", func(t *testing.T) {
		spec.RemovePodCIDR, spec.PodCIDR = spec.PodCIDR, netip.MustParsePrefix("10.200.9.0/24")
		if _, err := machine.Converge(ctx, c, m.ID, spec, nil); err != nil {
			t.Fatal(err)
		}
		asWanted(ctx, t, c, m.ID, spec)
		out, err := api.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{RouteTableIds: []string{table}})
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(out.RouteTables[0].Routes, func(r types.Route) bool { return sdk.ToString(r.DestinationCidrBlock) == "10.200.0.0/24" }) {
			t.Error("the old route is still there")
		}
	})
	t.Run("import", func(t *testing.T) {
		found, pods, err := machine.Find(ctx, c, m.ID, "")
		if err != nil {
			t.Fatal(err)
		}
		if found.Name != "worker-0" || found.Role != infraaws.RoleWorker || found.HostKey != m.HostKey || found.RootVolumeGiB != 40 || pods != spec.PodCIDR {
			t.Errorf("found %+v with pods %s", found, pods)
		}
	})
}

// TestRefusals checks that what must be refused is refused at once, with a reason.
func TestRefusals(t *testing.T) {
	t.Parallel()
	a, ctx := newAccount(t), deadline(t)
	c := a.client(&wire{})
	ssh := a.newMachines(t, c)
	n := ensured(ctx, t, c, networkSpec())
	spec := machineSpecs(n)[0]

	t.Run("a host key that is not pinned", func(t *testing.T) {
		m := made(ctx, t, c, ssh.on(&wire{}), []machine.Spec{spec})[0]
		m.HostKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIOther"
		if err := machine.AwaitSSH(ctx, c, m, ssh.on(&wire{})); err == nil || !strings.Contains(err.Error(), "host key mismatch") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("another configuration's machine", func(t *testing.T) {
		other := spec
		other.PrivateIP = netip.MustParseAddr("10.240.0.99")
		if _, err := machine.Launch(ctx, c, other, random); err == nil || !strings.Contains(err.Error(), "exists already as i-") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("a private address in use", func(t *testing.T) {
		other := spec
		other.Name = "controller-9"
		_, err := machine.Launch(ctx, c, other, random)
		if infraaws.Advice(err) == "" {
			t.Errorf("no advice for %v", err)
		}
	})
	t.Run("the network while machines are in it", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if err := network.Delete(ctx, c, networkSpec()); err == nil {
			t.Error("deleted")
		}
	})
}

func counts(calls []string) map[string]int {
	out := map[string]int{}
	for _, c := range calls {
		out[c]++
	}
	return out
}
