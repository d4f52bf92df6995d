package cloud_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	awselb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/smithy-go"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

// document returns a policy of examples/iam.
func document(t *testing.T, name string) string {
	t.Helper()
	return string(cloudtest.Must[[]byte](t)(os.ReadFile(filepath.Join("..", "..", "..", "examples", "iam", name+".json"))))
}

// TestServicePolicy: the role for Services reaches the load balancers of Services of its own cluster, and the workers'
// group. It does not reach the load balancers of the API and of other clusters, nor other groups.
func TestServicePolicy(t *testing.T) {
	const service, own = "kubernetes.io/cluster/demo", "k8s-from-scratch/cluster"
	l := cloudtest.New(t)
	s, ctx := l.NewSite(t), t.Context()
	role := l.UserWith(t, strings.ReplaceAll(document(t, "service-load-balancers"), "CLUSTER", "demo"))
	tags := func(keys []string) (out []elbtypes.Tag) {
		for _, key := range keys {
			out = append(out, elbtypes.Tag{Key: aws.String(key), Value: aws.String("owned")})
		}
		return out
	}
	balancer := func(by *cloudtest.Lab, name string, keys ...string) (string, error) {
		in := &awselb.CreateLoadBalancerInput{Name: &name, Type: elbtypes.LoadBalancerTypeEnumNetwork, Scheme: elbtypes.LoadBalancerSchemeEnumInternal, Subnets: []string{s.Subnet}}
		in.Tags = tags(keys)
		out, err := by.ELB.CreateLoadBalancer(ctx, in)
		if err != nil {
			return "", err
		}
		return *out.LoadBalancers[0].LoadBalancerArn, nil
	}
	for _, tt := range []struct {
		name       string
		keys       []string
		makes, end bool
	}{
		{"service", []string{service, "kubernetes.io/service-name"}, true, true},
		{"api", []string{service, own}, false, false},
		{"other", []string{"kubernetes.io/cluster/other"}, false, false},
		{"nobodys", nil, false, false},
	} {
		arn, err := balancer(role, tt.name, tt.keys...)
		if tt.makes != (err == nil) {
			t.Errorf("making %s: %v", tt.name, err)
		}
		if arn == "" {
			arn = cloudtest.Must[string](t)(balancer(l, tt.name, tt.keys...))
		}
		group := cloudtest.Must[*awselb.CreateTargetGroupOutput](t)(l.ELB.CreateTargetGroup(ctx, &awselb.CreateTargetGroupInput{
			Name: &tt.name, Protocol: elbtypes.ProtocolEnumTcp, Port: aws.Int32(30000), VpcId: &s.VPC, TargetType: elbtypes.TargetTypeEnumInstance, Tags: tags(tt.keys),
		})).TargetGroups[0].TargetGroupArn
		for what, try := range map[string]func() error{
			"listening on": func() error {
				_, err := role.ELB.CreateListener(ctx, &awselb.CreateListenerInput{LoadBalancerArn: &arn, Port: aws.Int32(81), Protocol: elbtypes.ProtocolEnumTcp, Tags: tags([]string{service}),
					DefaultActions: []elbtypes.Action{{Type: elbtypes.ActionTypeEnumForward, TargetGroupArn: group}}})
				return err
			},
			"checking the targets of": func() error {
				_, err := role.ELB.ModifyTargetGroup(ctx, &awselb.ModifyTargetGroupInput{TargetGroupArn: group, HealthyThresholdCount: aws.Int32(4)})
				return err
			},
		} {
			if err := try(); tt.end != (err == nil) {
				t.Errorf("%s %s: %v", what, tt.name, err)
			}
		}
		if _, err = role.ELB.DeleteLoadBalancer(ctx, &awselb.DeleteLoadBalancerInput{LoadBalancerArn: &arn}); tt.end != (err == nil) {
			t.Errorf("ending %s: %v", tt.name, err)
		}
	}
	for name, opens := range map[string]bool{"worker": true, "controller": false, "lb": false} {
		group := cloudtest.Must[*ec2.CreateSecurityGroupOutput](t)(l.CreateSecurityGroup(ctx, &ec2.CreateSecurityGroupInput{
			GroupName: &name, Description: &name, VpcId: &s.VPC, TagSpecifications: []ec2types.TagSpecification{{ResourceType: ec2types.ResourceTypeSecurityGroup,
				Tags: []ec2types.Tag{{Key: aws.String(service), Value: aws.String("owned")}, {Key: aws.String(own), Value: aws.String("demo")}, {Key: aws.String("k8s-from-scratch/name"), Value: &name}}}},
		}))
		_, err := role.AuthorizeSecurityGroupIngress(ctx, &ec2.AuthorizeSecurityGroupIngressInput{GroupId: group.GroupId, IpPermissions: []ec2types.IpPermission{{
			IpProtocol: aws.String("tcp"), FromPort: aws.Int32(30000), ToPort: aws.Int32(30000), IpRanges: []ec2types.IpRange{{CidrIp: aws.String("0.0.0.0/0")}}}}})
		if opens != (err == nil) {
			t.Errorf("opening the group %s: %v", name, err)
		}
	}
}

// TestVolumePolicy: the role of the EBS CSI driver makes volumes and snapshots with the tag of its own cluster, changes these alone, and
// attaches them to machines of this cluster. Volumes of k8s_volume and of machines have a tag more, and are not the driver's.
func TestVolumePolicy(t *testing.T) {
	const made, own = "kubernetes.io/cluster/demo", "k8s-from-scratch/cluster"
	l := cloudtest.New(t)
	s, ctx := l.NewSite(t), t.Context()
	role := l.UserWith(t, strings.ReplaceAll(document(t, "ebs-csi"), "CLUSTER", "demo"))
	specs := func(kind ec2types.ResourceType, keys []string) []ec2types.TagSpecification {
		spec := ec2types.TagSpecification{ResourceType: kind}
		for _, key := range keys {
			spec.Tags = append(spec.Tags, ec2types.Tag{Key: &key, Value: aws.String("owned")})
		}
		if len(keys) == 0 {
			return nil
		}
		return []ec2types.TagSpecification{spec}
	}
	// may reports whether the policy allows a call: what else refuses it does not matter.
	may := func(err error) bool {
		var refused smithy.APIError
		return !errors.As(err, &refused) || refused.ErrorCode() != "UnauthorizedOperation"
	}
	machine := func(keys ...string) *ec2types.Instance {
		in := s.RunInput()
		in.TagSpecifications = specs(ec2types.ResourceTypeInstance, keys)
		i := l.Run(t, in)
		return &i
	}
	node, others := machine(made, own), machine("kubernetes.io/cluster/other", own)

	for _, tt := range []struct {
		name        string
		keys        []string
		makes, ends bool
	}{
		{"a claim's", []string{made, "ebs.csi.aws.com/cluster", "CSIVolumeName"}, true, true},
		{"k8s_volume's", []string{made, own}, false, false},
		{"another cluster's", []string{"kubernetes.io/cluster/other", "ebs.csi.aws.com/cluster", "CSIVolumeName"}, false, false},
		{"nobody's", nil, false, false},
	} {
		in := &ec2.CreateVolumeInput{AvailabilityZone: node.Placement.AvailabilityZone, Size: aws.Int32(1), Encrypted: aws.Bool(true),
			VolumeType: ec2types.VolumeTypeGp3, TagSpecifications: specs(ec2types.ResourceTypeVolume, tt.keys)}
		v, err := role.CreateVolume(ctx, in)
		if tt.makes != (err == nil) {
			t.Errorf("making %s volume: %v", tt.name, err)
		}
		if err != nil {
			v = cloudtest.Must[*ec2.CreateVolumeOutput](t)(l.CreateVolume(ctx, in))
		}
		snapshots := specs(ec2types.ResourceTypeSnapshot, tt.keys)
		snapshot := cloudtest.Must[*ec2.CreateSnapshotOutput](t)(l.CreateSnapshot(ctx, &ec2.CreateSnapshotInput{VolumeId: v.VolumeId, TagSpecifications: snapshots})).SnapshotId
		cloudtest.Eventually(t, "the snapshot is completed", func() bool {
			l.Clock.Advance(time.Second)
			out := cloudtest.Must[*ec2.DescribeSnapshotsOutput](t)(l.DescribeSnapshots(ctx, &ec2.DescribeSnapshotsInput{SnapshotIds: []string{*snapshot}}))
			return out.Snapshots[0].State == ec2types.SnapshotStateCompleted
		})
		for _, try := range []struct {
			what    string
			allowed bool
			do      func() error
		}{
			{"attaching", tt.ends, func() error {
				_, err := role.AttachVolume(ctx, &ec2.AttachVolumeInput{VolumeId: v.VolumeId, InstanceId: node.InstanceId, Device: aws.String("/dev/xvdaa")})
				return err
			}},
			{"detaching", tt.ends, func() error {
				_, err := role.DetachVolume(ctx, &ec2.DetachVolumeInput{VolumeId: v.VolumeId, InstanceId: node.InstanceId})
				return err
			}},
			{"attaching to another cluster's machine", false, func() error {
				_, err := role.AttachVolume(ctx, &ec2.AttachVolumeInput{VolumeId: v.VolumeId, InstanceId: others.InstanceId, Device: aws.String("/dev/xvdaa")})
				return err
			}},
			{"growing", tt.ends, func() error {
				_, err := role.ModifyVolume(ctx, &ec2.ModifyVolumeInput{VolumeId: v.VolumeId, Size: aws.Int32(2)})
				return err
			}},
			{"a snapshot of", tt.ends, func() error {
				out, err := role.CreateSnapshot(ctx, &ec2.CreateSnapshotInput{VolumeId: v.VolumeId, TagSpecifications: specs(ec2types.ResourceTypeSnapshot, []string{made})})
				if tt.ends != (err == nil) {
					t.Errorf("a snapshot of %s volume: %v, %v", tt.name, out, err)
				}
				return err
			}},
			{"a snapshot without the cluster's tag of", false, func() error {
				_, err := role.CreateSnapshot(ctx, &ec2.CreateSnapshotInput{VolumeId: v.VolumeId})
				return err
			}},
			{"a volume of a snapshot of", tt.ends, func() error {
				in := *in
				in.ClientToken, in.SnapshotId, in.TagSpecifications = nil, snapshot, specs(ec2types.ResourceTypeVolume, []string{made})
				out, err := role.CreateVolume(ctx, &in)
				if tt.ends != (err == nil) {
					t.Errorf("a volume of a snapshot of %s: %v, %v", tt.name, out, err)
				}
				return err
			}},
			{"deleting a snapshot of", tt.ends, func() error {
				_, err := role.DeleteSnapshot(ctx, &ec2.DeleteSnapshotInput{SnapshotId: snapshot})
				return err
			}},
			{"tagging", false, func() error {
				_, err := role.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{*v.VolumeId}, Tags: []ec2types.Tag{{Key: aws.String(made), Value: aws.String("owned")}}})
				return err
			}},
			{"taking a tag from", false, func() error {
				_, err := role.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: []string{*v.VolumeId}, Tags: []ec2types.Tag{{Key: aws.String(own)}}})
				return err
			}},
			{"deleting", tt.ends, func() error {
				_, err := role.DeleteVolume(ctx, &ec2.DeleteVolumeInput{VolumeId: v.VolumeId})
				return err
			}},
		} {
			if err := try.do(); try.allowed != may(err) {
				t.Errorf("%s %s volume: %v", try.what, tt.name, err)
			}
		}
		l.Clock.Advance(time.Minute) // snapshots of a volume are apart
	}
	for what, err := range map[string]error{
		"zones":         errorOf(role.DescribeAvailabilityZones(ctx, &ec2.DescribeAvailabilityZonesInput{DryRun: aws.Bool(true)})),
		"instances":     errorOf(role.DescribeInstances(ctx, &ec2.DescribeInstancesInput{})),
		"modifications": errorOf(role.DescribeVolumesModifications(ctx, &ec2.DescribeVolumesModificationsInput{})),
		"snapshots":     errorOf(role.DescribeSnapshots(ctx, &ec2.DescribeSnapshotsInput{})),
		"status":        errorOf(role.DescribeVolumeStatus(ctx, &ec2.DescribeVolumeStatusInput{})),
		"tags":          errorOf(role.DescribeTags(ctx, &ec2.DescribeTagsInput{})),
		"volumes":       errorOf(role.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{})),
	} {
		if !may(err) {
			t.Errorf("looking for %s: %v", what, err)
		}
	}
	if _, err := role.TerminateInstances(ctx, &ec2.TerminateInstancesInput{InstanceIds: []string{*node.InstanceId}}); may(err) {
		t.Error("the driver may terminate a machine")
	}
}

func errorOf[T any](_ T, err error) error { return err }
