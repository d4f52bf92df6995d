package ec2_test

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

func TestModifyInstance(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	id := l.Run(t, s.RunInput()).InstanceId
	modify := func(change func(*awsec2.ModifyInstanceAttributeInput)) error {
		in := &awsec2.ModifyInstanceAttributeInput{InstanceId: id}
		change(in)
		_, err := l.ModifyInstanceAttribute(ctx, in)
		return err
	}
	off := &types.AttributeBooleanValue{Value: aws.Bool(false)}
	cloudtest.Refused(t, modify(func(in *awsec2.ModifyInstanceAttributeInput) { in.SourceDestCheck = off }), "")
	if l.Network.VPC(t, s.VPC).Interfaces[0].SourceDestCheck {
		t.Error("the network still checks source and destination")
	}
	other := l.NewSecurityGroup(t, s.VPC, "other")
	cloudtest.Refused(t, modify(func(in *awsec2.ModifyInstanceAttributeInput) { in.Groups = []string{other} }), "")
	if got := l.Network.VPC(t, s.VPC).Interfaces[0].Groups; len(got) != 1 || got[0] != other {
		t.Errorf("the network was told the groups %v", got)
	}
	cloudtest.Refused(t, modify(func(in *awsec2.ModifyInstanceAttributeInput) { in.Groups, in.SourceDestCheck = []string{other}, off }), "InvalidParameterCombination")
	cloudtest.Refused(t, modify(func(*awsec2.ModifyInstanceAttributeInput) {}), "InvalidParameterCombination")
	cloudtest.Refused(t, modify(func(in *awsec2.ModifyInstanceAttributeInput) {
		in.UserData = &types.SecureBlobAttributeValue{Value: []byte("new")}
	}), "IncorrectInstanceState")
	cloudtest.Must[*awsec2.ModifyInstanceMetadataOptionsOutput](t)(l.ModifyInstanceMetadataOptions(ctx, &awsec2.ModifyInstanceMetadataOptionsInput{InstanceId: id, HttpPutResponseHopLimit: aws.Int32(3)}))
	if o := l.Instance(t, *id).MetadataOptions; *o.HttpPutResponseHopLimit != 3 || o.HttpTokens != types.HttpTokensStateRequired {
		t.Errorf("metadata options are %+v", o)
	}
	v := l.Instance(t, *id).BlockDeviceMappings[0].Ebs.VolumeId
	size := func() int32 {
		return *cloudtest.Must[*awsec2.DescribeVolumesOutput](t)(l.DescribeVolumes(ctx, &awsec2.DescribeVolumesInput{VolumeIds: []string{*v}})).Volumes[0].Size
	}
	grow := func(gib int32) error {
		_, err := l.ModifyVolume(ctx, &awsec2.ModifyVolumeInput{VolumeId: v, Size: &gib})
		return err
	}
	was := size()
	cloudtest.Refused(t, grow(30), "")
	for _, stage := range []struct {
		state types.VolumeModificationState
		size  int32
		next  time.Duration
		again string
	}{
		{types.VolumeModificationStateModifying, was, 500 * time.Millisecond, "IncorrectModificationState"},
		{types.VolumeModificationStateOptimizing, 30, time.Second, "IncorrectModificationState"},
		{types.VolumeModificationStateCompleted, 30, 0, ""},
	} {
		m := cloudtest.Must[*awsec2.DescribeVolumesModificationsOutput](t)(l.DescribeVolumesModifications(ctx, &awsec2.DescribeVolumesModificationsInput{VolumeIds: []string{*v}})).VolumesModifications[0]
		if m.ModificationState != stage.state || *m.TargetSize != 30 || size() != stage.size {
			t.Errorf("size %d, modification %+v; wanted it %s", size(), m, stage.state)
		}
		if stage.again != "" {
			cloudtest.Refused(t, grow(40), stage.again)
		}
		l.Clock.Advance(stage.next)
	}
	cloudtest.Refused(t, grow(10), "InvalidParameterValue")
	// Four modifications fit in 24 hours. The first was 1.5 s ago.
	for gib := int32(31); gib < 34; gib++ {
		cloudtest.Refused(t, grow(gib), "")
		l.Clock.Advance(2 * time.Second)
	}
	cloudtest.Refused(t, grow(34), "VolumeModificationRateExceeded")
	l.Clock.Advance(24*time.Hour - 10*time.Second)
	cloudtest.Refused(t, grow(34), "VolumeModificationRateExceeded")
	l.Clock.Advance(5 * time.Second)
	cloudtest.Refused(t, grow(34), "") // the first two are out of the period
	l.Clock.Advance(time.Second)
	cloudtest.Refused(t, grow(35), "IncorrectModificationState")
	l.Clock.Advance(500 * time.Millisecond)
	cloudtest.Refused(t, grow(35), "")
	_, err := l.DeleteVolume(ctx, &awsec2.DeleteVolumeInput{VolumeId: v})
	cloudtest.Refused(t, err, "VolumeInUse")
}
