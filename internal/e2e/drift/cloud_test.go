package drift_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// The resources of the example that are in the account.
const (
	network = "k8s_network.this"
	keys    = "k8s_pki.this"
)

func named(kind, name string) []types.Filter {
	return []types.Filter{
		{Name: aws.String("tag:k8s-from-scratch/kind"), Values: []string{kind}},
		{Name: aws.String("tag:k8s-from-scratch/name"), Values: []string{name}},
	}
}

func (w *world) instance(t *testing.T, name string) types.Instance {
	t.Helper()
	out := harness.Must[*ec2.DescribeInstancesOutput](t)(w.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{Filters: append(named("machine", name),
		types.Filter{Name: aws.String("instance-state-name"), Values: []string{"running", "stopped"}})}))
	if len(out.Reservations) != 1 {
		t.Fatalf("instances of %s: %d", name, len(out.Reservations))
	}
	return out.Reservations[0].Instances[0]
}

func (w *world) group(t *testing.T, role string) types.SecurityGroup {
	t.Helper()
	out := harness.Must[*ec2.DescribeSecurityGroupsOutput](t)(w.ec2.DescribeSecurityGroups(t.Context(), &ec2.DescribeSecurityGroupsInput{Filters: named("network", role)}))
	if len(out.SecurityGroups) != 1 {
		t.Fatalf("security groups of %s: %d", role, len(out.SecurityGroups))
	}
	return out.SecurityGroups[0]
}

func (w *world) table(t *testing.T) types.RouteTable {
	t.Helper()
	out := harness.Must[*ec2.DescribeRouteTablesOutput](t)(w.ec2.DescribeRouteTables(t.Context(), &ec2.DescribeRouteTablesInput{Filters: []types.Filter{
		{Name: aws.String("tag:k8s-from-scratch/kind"), Values: []string{"network"}}}}))
	if len(out.RouteTables) != 1 {
		t.Fatalf("route tables: %d", len(out.RouteTables))
	}
	return out.RouteTables[0]
}

// text formats a value from EC2 for comparison.
func text(t *testing.T, v any) string {
	t.Helper()
	return string(harness.Must[[]byte](t)(json.Marshal(v)))
}

func seeGroup(role string) func(*testing.T, *world) string {
	return func(t *testing.T, w *world) string {
		var rules []string
		for _, p := range w.group(t, role).IpPermissions {
			for _, r := range p.IpRanges {
				rules = append(rules, fmt.Sprint(*p.IpProtocol, aws.ToInt32(p.FromPort), " ", *r.CidrIp))
			}
			for _, r := range p.UserIdGroupPairs {
				rules = append(rules, fmt.Sprint(*p.IpProtocol, aws.ToInt32(p.FromPort), " ", *r.GroupId))
			}
		}
		slices.Sort(rules)
		return strings.Join(rules, "\n")
	}
}

func seeRoutes(t *testing.T, w *world) string {
	var routes []string
	for _, r := range w.table(t).Routes {
		routes = append(routes, fmt.Sprint(aws.ToString(r.DestinationCidrBlock), " ", aws.ToString(r.GatewayId), aws.ToString(r.NetworkInterfaceId)))
	}
	slices.Sort(routes)
	return strings.Join(routes, "\n")
}

func (w *world) deleteRoute(t *testing.T, destination string) {
	t.Helper()
	harness.Must[*ec2.DeleteRouteOutput](t)(w.ec2.DeleteRoute(t.Context(), &ec2.DeleteRouteInput{RouteTableId: w.table(t).RouteTableId, DestinationCidrBlock: &destination}))
}

func account() []damage {
	tcp := func(port int32, from string) []types.IpPermission {
		return []types.IpPermission{{IpProtocol: aws.String("tcp"), FromPort: &port, ToPort: &port, IpRanges: []types.IpRange{{CidrIp: &from}}}}
	}
	return []damage{
		{
			name: "security-group rule added", resource: network, thing: "security group worker",
			hurt: func(t *testing.T, w *world) {
				harness.Must[*ec2.AuthorizeSecurityGroupIngressOutput](t)(w.ec2.AuthorizeSecurityGroupIngress(t.Context(), &ec2.AuthorizeSecurityGroupIngressInput{
					GroupId: w.group(t, "worker").GroupId, IpPermissions: tcp(30080, "0.0.0.0/0")}))
			},
			look: seeGroup("worker"), says: []string{"rule tcp 30080 from 0.0.0.0/0: not wanted"},
		},
		{
			name: "security-group rule removed", resource: network, thing: "security group controller",
			hurt: func(t *testing.T, w *world) {
				port, worker := int32(6443), w.group(t, "worker").GroupId
				harness.Must[*ec2.RevokeSecurityGroupIngressOutput](t)(w.ec2.RevokeSecurityGroupIngress(t.Context(), &ec2.RevokeSecurityGroupIngressInput{
					GroupId: w.group(t, "controller").GroupId, IpPermissions: []types.IpPermission{{IpProtocol: aws.String("tcp"), FromPort: &port, ToPort: &port,
						UserIdGroupPairs: []types.UserIdGroupPair{{GroupId: worker}}}}}))
			},
			look: seeGroup("controller"), says: []string{"rule tcp 6443 from group worker: missing"},
		},
		{
			name: "tag of the network deleted", resource: network, thing: "vpc",
			hurt: func(t *testing.T, w *world) {
				harness.Must[*ec2.DeleteTagsOutput](t)(w.ec2.DeleteTags(t.Context(), &ec2.DeleteTagsInput{
					Resources: []string{*w.table(t).VpcId}, Tags: []types.Tag{{Key: aws.String("Name")}}}))
			},
			look: func(t *testing.T, w *world) string {
				out := harness.Must[*ec2.DescribeVpcsOutput](t)(w.ec2.DescribeVpcs(t.Context(), &ec2.DescribeVpcsInput{VpcIds: []string{*w.table(t).VpcId}}))
				return tags(out.Vpcs[0].Tags)
			},
			says: []string{`tag Name: missing, wanted "demo"`},
		},
		{
			name: "tag of a machine changed", resource: "k8s_machine.controller[0]", thing: "controller-0",
			hurt: func(t *testing.T, w *world) {
				harness.Must[*ec2.CreateTagsOutput](t)(w.ec2.CreateTags(t.Context(), &ec2.CreateTagsInput{
					Resources: []string{*w.instance(t, "controller-0").InstanceId}, Tags: []types.Tag{{Key: aws.String("Name"), Value: aws.String("by-hand")}}}))
			},
			look: func(t *testing.T, w *world) string { return tags(w.instance(t, "controller-0").Tags) },
			says: []string{`tag Name: found "by-hand", wanted "demo-controller-0"`},
		},
		{
			name: "metadata without tokens", resource: "k8s_machine.controller[1]", thing: "controller-1",
			hurt: func(t *testing.T, w *world) {
				harness.Must[*ec2.ModifyInstanceMetadataOptionsOutput](t)(w.ec2.ModifyInstanceMetadataOptions(t.Context(), &ec2.ModifyInstanceMetadataOptionsInput{
					InstanceId: w.instance(t, "controller-1").InstanceId, HttpTokens: types.HttpTokensStateOptional}))
			},
			look: func(t *testing.T, w *world) string {
				return string(w.instance(t, "controller-1").MetadataOptions.HttpTokens)
			},
			says: []string{"metadata service: tokens are optional, wanted required"},
		},
		{
			name: "route to pods deleted", resource: "k8s_machine.worker[0]", thing: "worker-0",
			hurt: func(t *testing.T, w *world) { w.deleteRoute(t, "10.200.0.0/24") }, look: seeRoutes,
			says: []string{`route 10\.200\.0\.0/24 in rtb-\w+: missing, wanted eni-\w+`},
		},
		{
			name: "source/destination check on", resource: "k8s_machine.worker[1]", thing: "worker-1",
			hurt: func(t *testing.T, w *world) {
				harness.Must[*ec2.ModifyInstanceAttributeOutput](t)(w.ec2.ModifyInstanceAttribute(t.Context(), &ec2.ModifyInstanceAttributeInput{
					InstanceId: w.instance(t, "worker-1").InstanceId, SourceDestCheck: &types.AttributeBooleanValue{Value: aws.Bool(true)}}))
			},
			look: func(t *testing.T, w *world) string {
				return fmt.Sprint(*w.instance(t, "worker-1").NetworkInterfaces[0].SourceDestCheck)
			},
			says: []string{"source/destination check: found on, wanted off"},
		},
		{
			name: "another security group beside", resource: "k8s_machine.controller[2]", thing: "controller-2",
			hurt: func(t *testing.T, w *world) {
				i := w.instance(t, "controller-2")
				groups := []string{*w.group(t, "worker").GroupId}
				for _, g := range i.SecurityGroups {
					groups = append(groups, *g.GroupId)
				}
				harness.Must[*ec2.ModifyInstanceAttributeOutput](t)(w.ec2.ModifyInstanceAttribute(t.Context(), &ec2.ModifyInstanceAttributeInput{
					InstanceId: i.InstanceId, Groups: groups}))
			},
			look: func(t *testing.T, w *world) string {
				return text(t, w.instance(t, "controller-2").NetworkInterfaces[0].Groups)
			},
			says: []string{`security groups: found sg-\w+, sg-\w+, sg-\w+, wanted sg-\w+, sg-\w+`},
		},
		{
			name: "certificate missing from the key store", resource: keys, thing: "key store",
			hurt: func(t *testing.T, w *world) { w.deleteParameter(t, "kubernetes-ca.crt") },
			look: func(t *testing.T, w *world) string { v, _ := w.parameter(t, "kubernetes-ca.crt"); return v },
			says: []string{"kubernetes-ca.crt: missing"},
		},
	}
}

func tags(all []types.Tag) string {
	var out []string
	for _, t := range all {
		out = append(out, *t.Key+"="+*t.Value)
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// waysIn are damages after which the machines can no longer be reached.
func waysIn() []damage {
	address := func(t *testing.T, w *world) types.Address {
		out := harness.Must[*ec2.DescribeAddressesOutput](t)(w.ec2.DescribeAddresses(t.Context(), &ec2.DescribeAddressesInput{Filters: named("address", "lb")}))
		return out.Addresses[0]
	}
	return []damage{
		{
			name: "Elastic IP disassociated", resource: loadBalancer, thing: "elastic-ip",
			hurt: func(t *testing.T, w *world) {
				harness.Must[*ec2.DisassociateAddressOutput](t)(w.ec2.DisassociateAddress(t.Context(), &ec2.DisassociateAddressInput{AssociationId: address(t, w).AssociationId}))
			},
			look: func(t *testing.T, w *world) string { return aws.ToString(address(t, w).InstanceId) },
			says: []string{`Elastic IP [\d.]+: not associated, wanted i-\w+`},
		},
		{
			name: "way to the internet deleted", resource: network, thing: "route table public",
			hurt: func(t *testing.T, w *world) { w.deleteRoute(t, "0.0.0.0/0") }, look: seeRoutes,
			says: []string{`route 0\.0\.0\.0/0: missing, wanted igw-\w+`},
		},
	}
}

func (w *world) stop(t *testing.T, id *string) {
	t.Helper()
	harness.Must[*ec2.StopInstancesOutput](t)(w.ec2.StopInstances(t.Context(), &ec2.StopInstancesInput{InstanceIds: []string{*id}}))
	w.until(t, id, types.InstanceStateNameStopped)
}

func (w *world) until(t *testing.T, id *string, state types.InstanceStateName) {
	t.Helper()
	eventually(t, "instance "+*id+" is "+string(state), func() error {
		out, err := w.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{*id}})
		if err == nil && out.Reservations[0].Instances[0].State.Name != state {
			err = fmt.Errorf("it is %s", out.Reservations[0].Instances[0].State.Name)
		}
		return err
	})
}

// instances are damages after whose repair the machine has another public address, so that the
// roles on it are read again.
func instances() []damage {
	follow := []string{"host", "public_ip", "instance_state", "instance_type"}
	return []damage{
		{
			name: "instance stopped", resource: "k8s_machine.worker[1]", thing: "worker-1",
			hurt:     func(t *testing.T, w *world) { w.stop(t, w.instance(t, "worker-1").InstanceId) },
			look:     func(t *testing.T, w *world) string { return string(w.instance(t, "worker-1").State.Name) },
			says:     []string{"instance: found stopped, wanted running"},
			restarts: []string{"worker-1/*"}, changes: follow,
		},
		{
			name: "instance type changed", resource: "k8s_machine.worker[0]", thing: "worker-0",
			hurt: func(t *testing.T, w *world) {
				i := w.instance(t, "worker-0")
				w.stop(t, i.InstanceId)
				harness.Must[*ec2.ModifyInstanceAttributeOutput](t)(w.ec2.ModifyInstanceAttribute(t.Context(), &ec2.ModifyInstanceAttributeInput{
					InstanceId: i.InstanceId, InstanceType: &types.AttributeValue{Value: aws.String("t3.large")}}))
				harness.Must[*ec2.StartInstancesOutput](t)(w.ec2.StartInstances(t.Context(), &ec2.StartInstancesInput{InstanceIds: []string{*i.InstanceId}}))
				w.until(t, i.InstanceId, types.InstanceStateNameRunning)
			},
			look:     func(t *testing.T, w *world) string { return string(w.instance(t, "worker-0").InstanceType) },
			says:     []string{"instance type: found t3.large, wanted t3.medium"},
			restarts: []string{"worker-0/*"}, changes: follow,
		},
	}
}

// testTerminated terminates a worker. The plan creates it again, apply makes it a node again, and
// the other machines keep running untouched.
func (w *world) testTerminated(t *testing.T) {
	const machine = "k8s_machine.worker[1]"
	id := w.instance(t, "worker-1").InstanceId
	started := w.Units(t)
	harness.Must[*ec2.TerminateInstancesOutput](t)(w.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{*id}}))
	w.until(t, id, types.InstanceStateNameTerminated)
	_, words, err := w.WS.Plan(t.Context(), "-out=drift.tfplan")
	if err != nil {
		t.Fatal(err)
	}
	harness.Says(t, words, "Machine worker-1 is gone", *id+" is terminated", machine+" will be created")
	for address, c := range w.planned(t) {
		switch {
		case address == machine && slices.Equal(c.Change.Actions, []string{"create"}):
		case address == workerPool && slices.Equal(c.Change.Actions, []string{"update"}):
		default:
			t.Errorf("%s was not damaged, and the plan is to %v it", address, c.Change.Actions)
		}
	}
	w.Apply(t, "drift.tfplan")
	w.LearnMachines(t)
	if now := w.instance(t, "worker-1").InstanceId; *now == *id {
		t.Errorf("worker-1 is still instance %s", *id)
	}
	compareStarts(t, started, w.Units(t), []string{"worker-1/*"})
	w.Kubectl(t, "wait", "--for=condition=Ready", "--timeout=0", "nodes", "--all")
	w.NoChanges(t)
}

func parameterName(name string) *string { return aws.String("/k8s/demo/pki/" + name) }

func (w *world) parameter(t *testing.T, name string) (string, bool) {
	t.Helper()
	out, err := w.ssm.GetParameters(t.Context(), &ssm.GetParametersInput{Names: []string{*parameterName(name)}, WithDecryption: aws.Bool(true)})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Parameters) == 0 {
		return "", false
	}
	return *out.Parameters[0].Value, true
}

func (w *world) deleteParameter(t *testing.T, name string) {
	t.Helper()
	harness.Must[*ssm.DeleteParameterOutput](t)(w.ssm.DeleteParameter(t.Context(), &ssm.DeleteParameterInput{Name: parameterName(name)}))
}

// testKeyGone deletes a private key from the key store. No apply can create the same key again:
// apply refuses, says where a copy is, and changes nothing. After the key was restored by hand, a
// plan is empty.
func (w *world) testKeyGone(t *testing.T) {
	const name = "service-account.key"
	value, ok := w.parameter(t, name)
	if !ok {
		t.Fatalf("the key store has no %s", name)
	}
	started := w.Units(t)
	w.deleteParameter(t, name)
	w.plan(t, round{damages: []damage{{name: "key missing from the key store", resource: keys, thing: "key store", says: []string{name + ": missing"}}}})
	_, err := w.WS.Apply(t.Context(), "drift.tfplan")
	harness.Refused(t, err, name+" is gone and cannot be created again", "/k8s/demo/pki/", "/etc/kubernetes")
	if _, made := w.parameter(t, name); made {
		t.Error("another key was made")
	}
	harness.Eventually(t, time.Minute, "the name can be used again", func() error {
		_, err := w.ssm.PutParameter(t.Context(), &ssm.PutParameterInput{Name: parameterName(name), Value: &value, Type: ssmtypes.ParameterTypeSecureString})
		return err
	})
	compareStarts(t, started, w.Units(t), nil)
	w.NoChanges(t)
}
