package providertest

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsaddress "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/address"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// policyFile is a policy of examples/iam.
type policyFile struct {
	Version   string
	Statement []map[string]any
}

func ReadPolicy(t *testing.T, name string) policyFile {
	t.Helper()
	root, err := os.Getwd()
	for ; err == nil; root = filepath.Dir(root) {
		if _, missing := os.Stat(filepath.Join(root, "go.mod")); missing == nil || root == filepath.Dir(root) {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(root, "examples", "iam", name))
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
func StatementActions(s map[string]any) []string {
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

// Without returns the policy without an action, wherever it is allowed.
func (p policyFile) Without(action string) string {
	out := policyFile{Version: p.Version}
	for _, s := range p.Statement {
		left := slices.DeleteFunc(StatementActions(s), func(a string) bool { return a == action })
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

// Missed checks the error of a run without the permission for an action.
func Missed(t *testing.T, action, failure string) {
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

// Restricted is the provider run by a user with policies.
type Restricted struct {
	Cloud
	t             *testing.T
	client        *infraaws.Client         // of the same user
	other         *string                  // a route table that damage has made
	PermitDestroy func()                   // gives the user the policy for the destruction, too
	path          string                   // of roles that the user may pass
	Loses         func(action string) bool // of the wire
}

// NewRestricted runs the provider with the first policy only, until PermitDestroy is called.
func NewRestricted(t *testing.T, everyday, destroy string) *Restricted {
	t.Helper()
	r := restrict(t, func(Cloud) iam.Entity { return iam.Entity{Policies: []string{everyday}} })
	r.PermitDestroy = func() {
		Answer[iam.User](t)(r.Account.Cloud.Identities().PutUser("terraform", iam.Entity{Policies: []string{everyday, destroy}}))
	}
	return r
}

// Member returns a user who is bound to the cluster demo by a tag, with a policy and a boundary.
func (c Cloud) Member(t *testing.T, member, boundary string) iam.Entity {
	t.Helper()
	limit := Answer[iam.Managed](t)(c.Account.Cloud.Identities().PutPolicy("k8s-boundary", "", boundary))
	return iam.Entity{Policies: []string{member}, Boundary: limit.ARN, Tags: map[string]string{"k8s-cluster": "demo"}}
}

// NewMember runs the provider as a [Cloud.Member].
func NewMember(t *testing.T, member, boundary string) *Restricted {
	t.Helper()
	r := restrict(t, func(c Cloud) iam.Entity { return c.Member(t, member, boundary) })
	r.PermitDestroy, r.path = func() {}, "/k8s/demo/"
	return r
}

// restrict runs the provider as a user.
func restrict(t *testing.T, made func(Cloud) iam.Entity) *Restricted {
	t.Helper()
	c := NewCloud(t)
	user := Answer[iam.User](t)(c.Account.Cloud.Identities().PutUser("terraform", made(c)))
	c.More = Values{"access_key": user.AccessKeyID, "secret_key": user.SecretAccessKey}
	r := &Restricted{t: t}
	r.Cloud = c.ProcessOver(t, r.Lossy())
	url := r.Lossy().serve(t, c.Account.Cloud)
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

// Lossy is the wire of one process.
func (r *Restricted) Lossy() *Wire {
	return &Wire{loses: func(action string) bool { return r.Loses != nil && r.Loses(action) }}
}

// Job makes a cluster's parts, changes and, if damaged, damages them, and destroys them. It returns
// the first failure.
func (r *Restricted) Job(damaged bool) string {
	network, keys, worker, volume := r.Instance("k8s_network"), r.Instance("k8s_pki"), r.Instance("k8s_machine"), r.Instance("k8s_volume")
	machine := func(more Values) Values {
		return With(WorkerConfig(network), With(Values{"data_volume": Values{"id": volume.Get("id"), "mount_point": "/var/lib/data"}}, more))
	}
	address := func(instance string) awsaddress.Spec {
		return awsaddress.Spec{Cluster: "demo", Name: "lb", InstanceID: instance, Tags: map[string]string{"room": "12"}, Claim: infraaws.Claim{ID: "a", By: "me", At: time.Now()}}
	}
	var eip awsaddress.Address
	resized := Values{"instance_type": "t3.large", "root_volume_size": 30, "cpu_credits": "standard", "placement_group": "apart"}
	r.ProfileAt(r.t, "k8s-node", r.path)
	r.ProfileAt(r.t, "k8s-other", r.path)
	var tags []types.TagSpecification
	if r.path != "" { // a member's must have the tag
		tags = append(tags, infraaws.TagSpecification(types.ResourceTypePlacementGroup, map[string]string{infraaws.TagCluster: "demo"}))
	}
	r.PlacementGroup(r.t, "apart", types.PlacementStrategySpread, tags...)
	for _, step := range []struct {
		name string
		do   func() string
	}{
		{"create the network", func() string { return network.Attempt(policyNetwork()) }},
		{"create a volume", func() string { return volume.Attempt(VolumeConfig(network)) }},
		{"create keys", func() string { return keys.Attempt(Values{"cluster": "demo", "tags": Values{"room": "12"}}) }},
		{"create a machine", func() string {
			return worker.Attempt(machine(Values{"tags": Values{"room": "12"}, "instance_profile": "k8s-node"}))
		}},
		{"continue with a machine whose state was lost", func() string {
			r.Cloud = r.ProcessOver(r.t, r.Lossy()) // the first one was killed
			network, keys, volume, worker = r.Taken(network), r.Taken(keys), r.Taken(volume), r.Instance("k8s_machine")
			return worker.Attempt(machine(Values{"tags": Values{"room": "12"}, "instance_profile": "k8s-node"}))
		}},
		{"settle", func() string {
			r.Settle()
			return either(network.Refreshed, keys.Refreshed, volume.Refreshed, worker.Refreshed)
		}},
		{"import the machine", func() string { return r.Instance("k8s_machine").TryImport("demo/" + worker.Get("name").(string)) }},
		{"change the network", func() string {
			return network.Attempt(With(policyNetwork(), Values{"admin_cidrs": []any{"198.51.100.8/32"}, "tags": Values{"room": "12"}}))
		}},
		{"change the network back", func() string { return network.Attempt(policyNetwork()) }},
		{"change the keys' tags", func() string { return keys.Attempt(Values{"cluster": "demo"}) }},
		{"rotate", func() string {
			return keys.Attempt(Values{"cluster": "demo", "generations": Values{"kubernetes_ca": []any{1, 2}}})
		}},
		{"issue by the new authority", func() string {
			return keys.Attempt(Values{"cluster": "demo", "generations": Values{"kubernetes_ca": []any{2, 1}}})
		}},
		{"end the rotation", func() string {
			return keys.Attempt(Values{"cluster": "demo", "generations": Values{"kubernetes_ca": []any{2}}})
		}},
		{"change a machine", func() string { return worker.Attempt(machine(With(resized, Values{"instance_profile": "k8s-other"}))) }},
		{"take its profile away", func() string { return worker.Attempt(machine(resized)) }},
		{"give it one again", func() string {
			resized["instance_profile"] = "k8s-node"
			return worker.Attempt(machine(resized))
		}},
		{"enlarge a volume", func() string { return volume.Attempt(With(VolumeConfig(network), Values{"size": 9})) }},
		{"damage", func() string {
			if !damaged {
				return ""
			}
			return r.damage(network, worker)
		}},
		{"repair the network", func() string {
			return either(network.Refreshed, func() string { return network.Attempt(policyNetwork()) })
		}},
		{"repair the machine", func() string {
			return either(worker.Refreshed, func() string { return worker.Attempt(machine(resized)) })
		}},
		{"remove the strange table", func() string {
			if !damaged {
				return ""
			}
			_, err := r.Client.EC2.DeleteRouteTable(r.t.Context(), &ec2.DeleteRouteTableInput{RouteTableId: r.other})
			return said(err)
		}},
		{"an address", func() string {
			var err error
			eip, err = awsaddress.Ensure(r.t.Context(), r.client, "", address(worker.Get("id").(string)))
			return said(err)
		}},
		{"replace a machine", func() string {
			return either(func() string { return worker.Dismiss().Failure() }, func() string { return worker.Attempt(machine(Values{"placement_group": "apart"})) })
		}},
		{"move the address", func() string {
			_, err := awsaddress.Ensure(r.t.Context(), r.client, eip.AllocationID, address(worker.Get("id").(string)))
			return said(err)
		}},
		{"release the address", func() string {
			r.PermitDestroy()
			return said(awsaddress.Delete(r.t.Context(), r.client, eip.AllocationID, address("").Claim))
		}},
		{"destroy the volume", func() string { // it is detached as long as it is not known to have a file system
			_, err := r.Client.EC2.DeleteTags(r.t.Context(), &ec2.DeleteTagsInput{Resources: []string{volume.Get("id").(string)},
				Tags: []types.Tag{{Key: sdk.String(infraaws.TagFileSystem)}}})
			return either(func() string { return said(err) }, func() string { return volume.Dismiss().Failure() })
		}},
		{"destroy the machine", func() string { return worker.Dismiss().Failure() }},
		{"destroy the keys", func() string { return keys.Dismiss().Failure() }},
		{"destroy the network", func() string { return network.Dismiss().Failure() }},
	} {
		if failure := step.do(); failure != "" {
			return step.name + ": " + failure
		}
	}
	r.Account.Empty()
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

// policyNetwork is a network whose deletion does not wait for long. It has a NAT gateway, and WorkerConfig's
// machine is in its public subnet.
func policyNetwork() Values {
	return With(NetworkConfig(), Values{
		"node_cidr": "10.240.8.0/24", "public_cidr": "10.240.0.0/24", "nat_gateways": "one", "instance_connect_endpoint": true, "timeouts": Values{"delete": "5m"},
	})
}

func said(err error) string {
	if err == nil {
		return ""
	}
	return session.ErrorText(err)
}

// damage is done by somebody with all rights.
func (r *Restricted) damage(network, worker *Instance) string {
	api, ctx := r.Client.EC2, r.t.Context()
	groups := network.Get("security_group_ids").(Values)
	found, err := api.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{worker.Get("id").(string)}})
	if err != nil {
		return err.Error()
	}
	i := found.Reservations[0].Instances[0]
	stranger := "other"
	if r.path != "" { // a member may not take the subnet away from a table of another cluster
		stranger = "demo"
	}
	tables, err := api.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{Filters: []types.Filter{
		{Name: sdk.String("association.subnet-id"), Values: []string{*i.SubnetId}}}})
	if err != nil {
		return err.Error()
	}
	table := tables.RouteTables[0]
	other, err := api.CreateRouteTable(ctx, &ec2.CreateRouteTableInput{VpcId: i.VpcId, TagSpecifications: []types.TagSpecification{
		{ResourceType: types.ResourceTypeRouteTable, Tags: []types.Tag{{Key: sdk.String(infraaws.TagCluster), Value: &stranger}}}}})
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

// BalancerJob returns the first failure. The user has the policy for everyday and that for load balancers, and
// at the end those for load balancers and for destruction.
func (r *Restricted) BalancerJob(balancers, destroy string) string {
	tags := map[string]string{"k8s-cluster": "demo"}
	give := func(policies ...string) {
		Answer[iam.User](r.t)(r.Account.Cloud.Identities().PutUser("terraform", iam.Entity{Policies: policies, Tags: tags}))
	}
	everyday := ReadPolicy(r.t, "everyday.json").Without("")
	give(everyday, balancers)
	network, nlb, machine, leaving := r.Instance("k8s_network"), r.Instance("k8s_nlb"), r.Instance("k8s_machine"), r.Instance("k8s_machine")
	config := func(controllers ...*Instance) Values {
		hosts := []any{}
		for _, c := range controllers {
			hosts = append(hosts, c.Get("host"))
		}
		return Values{"network": network.Get("ref"), "controllers": hosts}
	}
	for _, step := range []struct {
		name string
		do   func() string
	}{
		{"create the network", func() string { return network.Attempt(With(NetworkConfig(), Values{"zone_count": 2})) }},
		{"create machines", func() string {
			for n, s := range network.Get("ref").(Values)["subnets"].([]any) { // load balancers are only made there
				tags[fmt.Sprintf("k8s-subnet-%d", n+1)] = s.(Values)["id"].(string)
			}
			give(everyday, balancers)
			return either(func() string {
				return machine.Attempt(Values{"name": "controller-0", "role": "controller", "network": network.Get("ref")})
			}, func() string {
				return leaving.Attempt(Values{"name": "controller-1", "role": "controller", "network": network.Get("ref")})
			})
		}},
		{"create load balancers", func() string {
			return nlb.Attempt(With(config(machine, leaving), Values{"tags": Values{"room": "12"}}))
		}},
		{"settle", func() string {
			r.Settle()
			return nlb.Refreshed()
		}},
		{"damage", func() string { return r.damageBalancer(nlb, network) }},
		{"repair", func() string { return nlb.Attempt(config(machine)) }},
		{"clean up", func() string {
			out := Answer[*elb.DescribeTargetGroupsOutput](r.t)(r.Client.ELB.DescribeTargetGroups(r.t.Context(), &elb.DescribeTargetGroupsInput{Names: []string{"other", "another"}}))
			for _, g := range out.TargetGroups {
				Answer[*elb.DeleteTargetGroupOutput](r.t)(r.Client.ELB.DeleteTargetGroup(r.t.Context(), &elb.DeleteTargetGroupInput{TargetGroupArn: g.TargetGroupArn}))
			}
			return ""
		}},
		{"delete load balancers", func() string { return nlb.Dismiss().Failure() }},
		{"destroy", func() string {
			give(everyday, balancers, destroy)
			return either(func() string { return machine.Dismiss().Failure() }, func() string { return leaving.Dismiss().Failure() }, func() string { return network.Dismiss().Failure() })
		}},
	} {
		if failure := step.do(); failure != "" {
			return step.name + ": " + failure
		}
	}
	r.Account.Empty()
	return ""
}

// damageBalancer is done by somebody with all rights. The refresh finds it.
func (r *Restricted) damageBalancer(nlb, network *Instance) string {
	n := &NLBCluster{Cloud: r.Cloud, NLB: nlb}
	api, ctx, arn, group := r.Client.ELB, r.t.Context(), n.Arn("internal"), n.Group(r.t, "internal")
	var failures []string
	note := func(_ any, err error) {
		if err != nil {
			failures = append(failures, err.Error())
		}
	}
	workers := network.Get("security_group_ids").(Values)["worker"].(string)
	subnets := network.Get("ref").(Values)["subnets"].([]any)
	note(api.SetSecurityGroups(ctx, &elb.SetSecurityGroupsInput{LoadBalancerArn: arn, SecurityGroups: []string{workers}}))
	note(api.SetSubnets(ctx, &elb.SetSubnetsInput{LoadBalancerArn: arn, Subnets: []string{subnets[0].(Values)["id"].(string)}}))
	note(api.ModifyTargetGroup(ctx, &elb.ModifyTargetGroupInput{TargetGroupArn: group.TargetGroupArn, HealthyThresholdCount: sdk.Int32(3)}))
	listeners := Answer[*elb.DescribeListenersOutput](r.t)(api.DescribeListeners(ctx, &elb.DescribeListenersInput{LoadBalancerArn: arn})).Listeners
	other, err := api.CreateTargetGroup(ctx, &elb.CreateTargetGroupInput{Name: sdk.String("other"), Protocol: elbtypes.ProtocolEnumTcp, Port: sdk.Int32(1), VpcId: group.VpcId, TargetType: elbtypes.TargetTypeEnumInstance})
	if err != nil {
		return err.Error()
	}
	note(api.ModifyListener(ctx, &elb.ModifyListenerInput{ListenerArn: listeners[0].ListenerArn, DefaultActions: []elbtypes.Action{{Type: elbtypes.ActionTypeEnumForward, TargetGroupArn: other.TargetGroups[0].TargetGroupArn}}}))
	another, err := api.CreateTargetGroup(ctx, &elb.CreateTargetGroupInput{Name: sdk.String("another"), Protocol: elbtypes.ProtocolEnumTcp, Port: sdk.Int32(1), VpcId: group.VpcId, TargetType: elbtypes.TargetTypeEnumInstance})
	if err != nil {
		return err.Error()
	}
	note(api.CreateListener(ctx, &elb.CreateListenerInput{LoadBalancerArn: arn, Port: sdk.Int32(80), Protocol: elbtypes.ProtocolEnumTcp,
		DefaultActions: []elbtypes.Action{{Type: elbtypes.ActionTypeEnumForward, TargetGroupArn: another.TargetGroups[0].TargetGroupArn}}}))
	failures = append(failures, nlb.Refreshed())
	if failure := strings.Join(failures, ""); failure != "" {
		return failure
	}
	return ""
}
