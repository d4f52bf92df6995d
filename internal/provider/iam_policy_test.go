package provider

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsaddress "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/address"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// policyFile is a policy of examples/iam.
type policyFile struct {
	Version   string
	Statement []map[string]any
}

func readPolicy(t *testing.T, name string) policyFile {
	t.Helper()
	raw, err := os.ReadFile("../../examples/iam/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var p policyFile
	if err := json.Unmarshal(raw, &p); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return p
}

// actions returns the actions of a statement.
func statementActions(s map[string]any) []string {
	var out []string
	switch a := s["Action"].(type) {
	case string:
		out = []string{a}
	case []any:
		for _, v := range a {
			out = append(out, v.(string))
		}
	}
	return out
}

// without returns the policy without an action, wherever it is allowed.
func (p policyFile) without(action string) string {
	out := policyFile{Version: p.Version}
	for _, s := range p.Statement {
		left := slices.DeleteFunc(statementActions(s), func(a string) bool { return a == action })
		if len(left) == 0 {
			continue
		}
		copied := map[string]any{}
		for k, v := range s {
			copied[k] = v
		}
		copied["Action"] = left
		out.Statement = append(out.Statement, copied)
	}
	raw, _ := json.Marshal(out) // of what was read from JSON
	return string(raw)
}

// neededElsewhere are actions that this test's job does not need, and who does. The end-to-end tests
// run under the same policies, and package cluster wants to see calls of the first two.
var neededElsewhere = map[string]string{
	"ec2:DescribeNetworkInterfaces":   "asked who has an address or a subnet that is still in use, if EC2 has not given it back in time",
	"ec2:DescribeInstanceStatus":      "asked while a machine does not answer on SSH yet",
	"ec2:CreateNetworkInterface":      "asked for by EC2 when it makes the interface of an endpoint, with the action that makes the endpoint",
	"iam:CreateServiceLinkedRole":     "asked for likewise, for the roles of EC2 Instance Connect and of Spot instances: see TestSpotPolicy",
	"ec2-instance-connect:OpenTunnel": "needed by ssh.instance_connect: this test's machines have no SSH",
	"ec2:DescribeTags":                "asked at the end of an apply, which settles its claims; without it the next refresh does",
}

// TestPolicies runs the main job, changes, repairs, a replacement and the destruction under exactly
// the policies of examples/iam: each of their actions is called, some by the damage of this test alone.
// Then it runs it again without one of them: the error names the action. K8S_KILLS=all, as make soak
// PART=kills sets it, does that for each, which also finds those that only this test needs.
func TestPolicies(t *testing.T) {
	t.Parallel()
	everyday, destroy := readPolicy(t, "everyday.json"), readPolicy(t, "destroy.json")
	whole := newRestricted(t, everyday.without(""), destroy.without(""))
	if failure := whole.job(true); failure != "" {
		t.Fatal(failure)
	}
	called := whole.account.Calls()
	var actions []string
	for _, s := range slices.Concat(everyday.Statement, destroy.Statement) {
		actions = append(actions, statementActions(s)...)
	}
	slices.Sort(actions)
	for _, action := range slices.Compact(actions) {
		service, name, _ := strings.Cut(action, ":")
		if neededElsewhere[action] != "" {
			continue
		}
		if called[name] == 0 && service != "iam" {
			t.Errorf("nobody calls %s: remove it from the policy, or say in neededElsewhere who needs it", action)
		}
		if !everyKill && !slices.Contains(tried, action) {
			continue
		}
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			missed(t, action, newRestricted(t, everyday.without(action), destroy.without(action)).job(true))
		})
	}
}

// tried are actions of every kind: to look, to make, with which resources are tagged, of another
// service, and to destroy.
var tried = []string{"ec2:DescribeVpcs", "ec2:RunInstances", "ec2:CreateTags", "iam:PassRole", "ssm:PutParameter", "ec2:DeleteVolume", "ec2:DescribeInstanceAttribute"}

// missed checks the error of a run without the permission for an action.
func missed(t *testing.T, action, failure string) {
	t.Helper()
	switch words := strings.Join(strings.Fields(failure), " "); {
	case failure == "":
		t.Error("nobody misses it: remove it from the policy, or say in neededElsewhere who needs it")
	case !strings.Contains(words, "not authorized to perform "+action+" "):
		t.Errorf("the error does not name the action: %s", words)
	case !strings.Contains(words, "docs/guides/iam"):
		t.Errorf("the error does not name the page: %s", words)
	case strings.Contains(words, "Encoded authorization failure"):
		t.Errorf("the error has the encoded message: %s", words)
	}
}

// TestPolicyAfterAnInterruption continues a create that ended before the machine had a host key of
// its own, under the policy and without the action with which it finds
// out how the machine was launched.
func TestPolicyAfterAnInterruption(t *testing.T) {
	t.Parallel()
	everyday, destroy := readPolicy(t, "everyday.json"), readPolicy(t, "destroy.json")
	for _, without := range []string{"", "ec2:DescribeInstanceAttribute"} {
		t.Run("without "+without, func(t *testing.T) {
			t.Parallel()
			r := newRestricted(t, everyday.without(without), destroy.without(""))
			network := r.instance("k8s_network")
			network.must(networkConfig())
			ctx := r.wire.arm(t.Context(), 0, false)
			r.wire.dieOn = "ssh"
			k := &killed{t: t, cloud: r.cloud, object: r.instance("k8s_machine")}
			k.die(ctx, k.object.plan(workerConfig(network)))
			if !r.wire.dead() {
				t.Fatal("it did not use SSH")
			}
			r.cloud = r.processOver(t, r.lossy())
			worker := r.instance("k8s_machine")
			failure := worker.attempt(workerConfig(r.taken(network)))
			if without != "" {
				missed(t, without, failure)
				return
			}
			if failure != "" {
				t.Error(failure)
			}
			if n := len(r.account.Cloud.Overview().Instances); n != 1 {
				t.Errorf("%d instances", n)
			}
		})
	}
}

// TestPoliciesWhenTagsAreUnknown: a condition on a resource's tags refuses also what is gone, or not
// known to EC2 yet. Neither ends the job.
func TestPoliciesWhenTagsAreUnknown(t *testing.T) {
	t.Parallel()
	everyday, destroy := readPolicy(t, "everyday.json").without(""), readPolicy(t, "destroy.json").without("")
	t.Run("new resources are not known at once", func(t *testing.T) {
		t.Parallel()
		r := newRestricted(t, everyday, destroy)
		r.account.Fault(fault.Fault{Kind: fault.Eventual, Calls: 3})
		if failure := r.job(false); failure != "" {
			t.Fatal(failure)
		}
	})
	t.Run("answers to deletions are lost", func(t *testing.T) {
		t.Parallel()
		r := newRestricted(t, everyday, destroy)
		lost := map[string]bool{}
		r.loses = func(action string) bool {
			lost[action] = regexp.MustCompile("^(Delete|Detach|Disassociate|Release|Revoke|Terminate)").MatchString(action)
			return lost[action]
		}
		if failure := r.job(true); failure != "" {
			t.Fatal(failure)
		}
		for _, action := range []string{"DeleteSecurityGroup", "DeleteSubnet", "DeleteVpc", "DetachInternetGateway", "ReleaseAddress", "RevokeSecurityGroupIngress", "TerminateInstances"} {
			if !lost[action] {
				t.Errorf("no answer to %s was lost", action)
			}
		}
	})
}

// restricted is the provider run by a user with policies.
type restricted struct {
	cloud
	t       *testing.T
	client  *infraaws.Client         // of the same user
	other   *string                  // a route table that damage has made
	destroy func()                   // gives the user the policy for the destruction, too
	loses   func(action string) bool // of the wire
}

// newRestricted runs the provider with the first policy only, until destroy is called.
func newRestricted(t *testing.T, everyday, destroy string) *restricted {
	t.Helper()
	c := newCloud(t)
	give := func(policies ...string) iam.User {
		user, err := c.account.Cloud.Identities().PutUser("terraform", policies)
		if err != nil {
			t.Fatal(err)
		}
		return user
	}
	user := give(everyday)
	c.more = values{"access_key": user.AccessKeyID, "secret_key": user.SecretAccessKey}
	r := &restricted{t: t, destroy: func() { give(everyday, destroy) }}
	r.cloud = c.processOver(t, r.lossy())
	url := r.lossy().serve(t, c.account.Cloud)
	client, err := infraaws.New(t.Context(), infraaws.Config{
		Region: "us-east-1", AccessKey: user.AccessKeyID, SecretKey: user.SecretAccessKey,
		Endpoints: infraaws.Endpoints{EC2: url, ELB: url, SSM: url, STS: url},
	})
	if err != nil {
		t.Fatal(err)
	}
	r.client = client
	return r
}

// lossy is the wire of one process.
func (r *restricted) lossy() *wire {
	return &wire{loses: func(action string) bool { return r.loses != nil && r.loses(action) }}
}

// job makes a cluster's parts, changes and, if damaged, damages them, and destroys them. It returns
// the first failure.
func (r *restricted) job(damaged bool) string {
	network, keys, worker, volume := r.instance("k8s_network"), r.instance("k8s_pki"), r.instance("k8s_machine"), r.instance("k8s_volume")
	machine := func(more values) values {
		return with(workerConfig(network), with(values{"data_volume": values{"id": volume.get("id"), "mount_point": "/var/lib/data"}}, more))
	}
	address := func(instance string) awsaddress.Spec {
		return awsaddress.Spec{Cluster: "demo", Name: "lb", InstanceID: instance, Tags: map[string]string{"room": "12"}, Claim: infraaws.Claim{ID: "a", By: "me", At: time.Now()}}
	}
	var eip awsaddress.Address
	resized := values{"instance_type": "t3.large", "root_volume_size": 30, "cpu_credits": "standard", "placement_group": "apart"}
	r.profile(r.t, "k8s-node")
	r.profile(r.t, "k8s-other")
	r.placementGroup(r.t, "apart", types.PlacementStrategySpread)
	for _, step := range []struct {
		name string
		do   func() string
	}{
		{"create the network", func() string { return network.attempt(policyNetwork()) }},
		{"create a volume", func() string { return volume.attempt(volumeConfig(network)) }},
		{"create keys", func() string { return keys.attempt(values{"cluster": "demo", "tags": values{"room": "12"}}) }},
		{"create a machine", func() string {
			return worker.attempt(machine(values{"tags": values{"room": "12"}, "instance_profile": "k8s-node"}))
		}},
		{"continue with a machine whose state was lost", func() string {
			r.cloud = r.processOver(r.t, r.lossy()) // the first one was killed
			network, keys, volume, worker = r.taken(network), r.taken(keys), r.taken(volume), r.instance("k8s_machine")
			return worker.attempt(machine(values{"tags": values{"room": "12"}, "instance_profile": "k8s-node"}))
		}},
		{"settle", func() string {
			r.provider.Settle(r.t.Context())
			return either(network.refreshed, keys.refreshed, volume.refreshed, worker.refreshed)
		}},
		{"change the network", func() string {
			return network.attempt(with(policyNetwork(), values{"admin_cidrs": []any{"198.51.100.8/32"}, "tags": values{"room": "12"}}))
		}},
		{"change the network back", func() string { return network.attempt(policyNetwork()) }},
		{"change the keys' tags", func() string { return keys.attempt(values{"cluster": "demo"}) }},
		{"rotate", func() string {
			return keys.attempt(values{"cluster": "demo", "generations": values{"kubernetes_ca": []any{1, 2}}})
		}},
		{"issue by the new authority", func() string {
			return keys.attempt(values{"cluster": "demo", "generations": values{"kubernetes_ca": []any{2, 1}}})
		}},
		{"end the rotation", func() string {
			return keys.attempt(values{"cluster": "demo", "generations": values{"kubernetes_ca": []any{2}}})
		}},
		{"change a machine", func() string { return worker.attempt(machine(with(resized, values{"instance_profile": "k8s-other"}))) }},
		{"take its profile away", func() string { return worker.attempt(machine(resized)) }},
		{"give it one again", func() string {
			resized["instance_profile"] = "k8s-node"
			return worker.attempt(machine(resized))
		}},
		{"enlarge a volume", func() string { return volume.attempt(with(volumeConfig(network), values{"size": 9})) }},
		{"damage", func() string {
			if !damaged {
				return ""
			}
			return r.damage(network, worker)
		}},
		{"repair the network", func() string {
			return either(network.refreshed, func() string { return network.attempt(policyNetwork()) })
		}},
		{"repair the machine", func() string {
			return either(worker.refreshed, func() string { return worker.attempt(machine(resized)) })
		}},
		{"remove the strange table", func() string {
			if !damaged {
				return ""
			}
			_, err := r.cloud.client.EC2.DeleteRouteTable(r.t.Context(), &ec2.DeleteRouteTableInput{RouteTableId: r.other})
			return said(err)
		}},
		{"an address", func() string {
			var err error
			eip, err = awsaddress.Ensure(r.t.Context(), r.client, "", address(worker.get("id").(string)))
			return said(err)
		}},
		{"replace a machine", func() string {
			return either(func() string { return worker.dismiss().failure() }, func() string { return worker.attempt(machine(values{"placement_group": "apart"})) })
		}},
		{"move the address", func() string {
			_, err := awsaddress.Ensure(r.t.Context(), r.client, eip.AllocationID, address(worker.get("id").(string)))
			return said(err)
		}},
		{"release the address", func() string {
			r.destroy()
			return said(awsaddress.Delete(r.t.Context(), r.client, eip.AllocationID, address("").Claim))
		}},
		{"destroy the volume", func() string { // it is detached as long as it is not known to have a file system
			_, err := r.cloud.client.EC2.DeleteTags(r.t.Context(), &ec2.DeleteTagsInput{Resources: []string{volume.get("id").(string)},
				Tags: []types.Tag{{Key: sdk.String(infraaws.TagFileSystem)}}})
			return either(func() string { return said(err) }, func() string { return volume.dismiss().failure() })
		}},
		{"destroy the machine", func() string { return worker.dismiss().failure() }},
		{"destroy the keys", func() string { return keys.dismiss().failure() }},
		{"destroy the network", func() string { return network.dismiss().failure() }},
	} {
		if failure := step.do(); failure != "" {
			return step.name + ": " + failure
		}
	}
	r.account.Empty()
	return ""
}

// either returns the first failure.
func either(steps ...func() string) string {
	for _, do := range steps {
		if failure := do(); failure != "" {
			return failure
		}
	}
	return ""
}

// policyNetwork is a network whose deletion does not wait for long. It has a NAT gateway, and workerConfig's
// machine is in its public subnet.
func policyNetwork() values {
	return with(networkConfig(), values{
		"node_cidr": "10.240.8.0/24", "public_cidr": "10.240.0.0/24", "nat_gateways": "one", "instance_connect_endpoint": true, "timeouts": values{"delete": "30s"},
	})
}

func said(err error) string {
	if err == nil {
		return ""
	}
	return session.ErrorText(err)
}

// damage is done by somebody with all rights.
func (r *restricted) damage(network, worker *instance) string {
	api, ctx := r.cloud.client.EC2, r.t.Context()
	groups := network.get("security_group_ids").(values)
	found, err := api.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{worker.get("id").(string)}})
	if err != nil {
		return err.Error()
	}
	i := found.Reservations[0].Instances[0]
	tables, err := api.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{Filters: []types.Filter{
		{Name: sdk.String("association.subnet-id"), Values: []string{*i.SubnetId}}}})
	if err != nil {
		return err.Error()
	}
	table := tables.RouteTables[0]
	other, err := api.CreateRouteTable(ctx, &ec2.CreateRouteTableInput{VpcId: i.VpcId, TagSpecifications: []types.TagSpecification{
		{ResourceType: types.ResourceTypeRouteTable, Tags: []types.Tag{{Key: sdk.String(infraaws.TagCluster), Value: sdk.String("other")}}}}})
	if err != nil {
		return err.Error()
	}
	r.other = other.RouteTable.RouteTableId
	var failures []string
	note := func(what string, err error) {
		if err != nil {
			failures = append(failures, fmt.Sprintf("%s: %v", what, err))
		}
	}
	_, err = api.ReplaceRouteTableAssociation(ctx, &ec2.ReplaceRouteTableAssociationInput{AssociationId: table.Associations[0].RouteTableAssociationId, RouteTableId: other.RouteTable.RouteTableId})
	note("association", err)
	_, err = api.ReplaceRoute(ctx, &ec2.ReplaceRouteInput{RouteTableId: table.RouteTableId, DestinationCidrBlock: sdk.String("0.0.0.0/0"), NetworkInterfaceId: i.NetworkInterfaces[0].NetworkInterfaceId})
	note("route", err)
	_, err = api.RevokeSecurityGroupEgress(ctx, &ec2.RevokeSecurityGroupEgressInput{GroupId: sdk.String(groups["worker"].(string)), IpPermissions: []types.IpPermission{{
		IpProtocol: sdk.String("-1"), IpRanges: []types.IpRange{{CidrIp: sdk.String("0.0.0.0/0")}}}}})
	note("egress", err)
	_, err = api.AuthorizeSecurityGroupEgress(ctx, &ec2.AuthorizeSecurityGroupEgressInput{GroupId: sdk.String(groups["worker"].(string)), IpPermissions: []types.IpPermission{{
		IpProtocol: sdk.String("tcp"), FromPort: sdk.Int32(443), ToPort: sdk.Int32(443), IpRanges: []types.IpRange{{CidrIp: sdk.String("0.0.0.0/0")}}}}})
	note("egress", err)
	_, err = api.ModifySubnetAttribute(ctx, &ec2.ModifySubnetAttributeInput{SubnetId: i.SubnetId, MapPublicIpOnLaunch: &types.AttributeBooleanValue{Value: sdk.Bool(false)}})
	note("subnet", err)
	_, err = api.ModifyInstanceMetadataOptions(ctx, &ec2.ModifyInstanceMetadataOptionsInput{InstanceId: i.InstanceId, HttpTokens: types.HttpTokensStateOptional})
	note("metadata", err)
	return strings.Join(failures, "\n")
}
