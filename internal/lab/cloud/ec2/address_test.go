package ec2_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
)

func TestAddresses(t *testing.T) {
	l := cloudtest.New(t, func(l *cloudtest.Lab) { l.Quotas = ec2.Quotas{Addresses: 2} })
	s := l.NewSite(t)
	ctx := t.Context()
	a, b := l.Run(t, s.RunInput()), l.Run(t, s.RunInput())
	allocate := func() (*awsec2.AllocateAddressOutput, error) {
		return l.AllocateAddress(ctx, &awsec2.AllocateAddressInput{Domain: types.DomainTypeVpc, TagSpecifications: cloudtest.Tags(types.ResourceTypeElasticIp, "Name", "lb")})
	}
	eip, spare := cloudtest.Must[*awsec2.AllocateAddressOutput](t)(allocate()), cloudtest.Must[*awsec2.AllocateAddressOutput](t)(allocate())
	_, err := allocate()
	cloudtest.Refused(t, err, "AddressLimitExceeded")

	associate := func(instance *string, reassociate bool) (string, error) {
		out, err := l.AssociateAddress(ctx, &awsec2.AssociateAddressInput{AllocationId: eip.AllocationId, InstanceId: instance, AllowReassociation: &reassociate})
		if err != nil {
			return "", err
		}
		return *out.AssociationId, nil
	}
	first := cloudtest.Must[string](t)(associate(a.InstanceId, false))
	if got := l.Instance(t, *a.InstanceId).PublicIpAddress; got == nil || *got != *eip.PublicIp {
		t.Errorf("the instance's public address is %v", got)
	}
	if again := cloudtest.Must[string](t)(associate(a.InstanceId, false)); again != first {
		t.Error("associating again made another association")
	}
	_, err = associate(b.InstanceId, false)
	cloudtest.Refused(t, err, "Resource.AlreadyAssociated")
	_, err = l.AssociateAddress(ctx, &awsec2.AssociateAddressInput{AllocationId: spare.AllocationId, InstanceId: a.InstanceId, AllowReassociation: aws.Bool(false)})
	cloudtest.Refused(t, err, "Resource.AlreadyAssociated")
	_, err = l.ReleaseAddress(ctx, &awsec2.ReleaseAddressInput{AllocationId: eip.AllocationId})
	cloudtest.Refused(t, err, "InvalidIPAddress.InUse")

	cloudtest.Must[string](t)(associate(b.InstanceId, true))
	if l.Instance(t, *a.InstanceId).PublicIpAddress != nil {
		t.Error("the first instance kept the address that moved")
	}
	_, err = l.DisassociateAddress(ctx, &awsec2.DisassociateAddressInput{AssociationId: &first})
	cloudtest.Refused(t, err, "InvalidAssociationID.NotFound")

	found := cloudtest.Must[*awsec2.DescribeAddressesOutput](t)(l.DescribeAddresses(ctx, &awsec2.DescribeAddressesInput{Filters: []types.Filter{cloudtest.Filter("instance-id", *b.InstanceId), cloudtest.Filter("tag:Name", "lb")}})).Addresses
	if len(found) != 1 || *found[0].PublicIp != *eip.PublicIp || *found[0].PrivateIpAddress != *b.PrivateIpAddress {
		t.Fatalf("found %+v", found)
	}

	// An address stays with a stopped instance and leaves a terminated one.
	cloudtest.Must[*awsec2.StopInstancesOutput](t)(l.StopInstances(ctx, &awsec2.StopInstancesInput{InstanceIds: []string{*b.InstanceId}}))
	if i := l.Await(t, *b.InstanceId, types.InstanceStateNameStopped); i.PublicIpAddress == nil || *i.PublicIpAddress != *eip.PublicIp {
		t.Errorf("stopped, the instance has %v", i.PublicIpAddress)
	}
	cloudtest.Must[*awsec2.TerminateInstancesOutput](t)(l.TerminateInstances(ctx, &awsec2.TerminateInstancesInput{InstanceIds: []string{*b.InstanceId}}))
	l.Await(t, *b.InstanceId, types.InstanceStateNameTerminated)
	after := cloudtest.Must[*awsec2.DescribeAddressesOutput](t)(l.DescribeAddresses(ctx, &awsec2.DescribeAddressesInput{AllocationIds: []string{*eip.AllocationId}})).Addresses[0]
	if after.AssociationId != nil || after.InstanceId != nil {
		t.Errorf("after the termination: %+v", after)
	}
	cloudtest.Must[*awsec2.ReleaseAddressOutput](t)(l.ReleaseAddress(ctx, &awsec2.ReleaseAddressInput{AllocationId: eip.AllocationId}))
	_, err = l.ReleaseAddress(ctx, &awsec2.ReleaseAddressInput{AllocationId: eip.AllocationId})
	cloudtest.Refused(t, err, "InvalidAllocationID.NotFound")
	_, err = l.AssociateAddress(ctx, &awsec2.AssociateAddressInput{AllocationId: spare.AllocationId})
	cloudtest.Refused(t, err, "MissingParameter")
	_, err = l.AssociateAddress(ctx, &awsec2.AssociateAddressInput{AllocationId: spare.AllocationId, InstanceId: aws.String("i-00000000000000000")})
	cloudtest.Refused(t, err, "InvalidInstanceID.NotFound")
}

func TestAddressNeedsAGateway(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	i := l.Run(t, s.RunInput())
	cloudtest.Must[*awsec2.DetachInternetGatewayOutput](t)(l.DetachInternetGateway(ctx, &awsec2.DetachInternetGatewayInput{InternetGatewayId: &s.Gateway, VpcId: &s.VPC}))
	eip := cloudtest.Must[*awsec2.AllocateAddressOutput](t)(l.AllocateAddress(ctx, &awsec2.AllocateAddressInput{}))
	_, err := l.AssociateAddress(ctx, &awsec2.AssociateAddressInput{AllocationId: eip.AllocationId, InstanceId: i.InstanceId})
	cloudtest.Refused(t, err, "Gateway.NotAttached")
}

// TestAddressReplacesAnAutomaticOne checks that an Elastic IP releases the automatic address, and
// that the pool of addresses is finite.
func TestAddressReplacesAnAutomaticOne(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	cloudtest.Must[*awsec2.ModifySubnetAttributeOutput](t)(l.ModifySubnetAttribute(ctx, &awsec2.ModifySubnetAttributeInput{SubnetId: &s.Subnet, MapPublicIpOnLaunch: &types.AttributeBooleanValue{Value: aws.Bool(true)}}))
	i := l.Run(t, s.RunInput())
	if i.PublicIpAddress == nil {
		t.Fatal("the subnet's instances get no public address")
	}
	eip := cloudtest.Must[*awsec2.AllocateAddressOutput](t)(l.AllocateAddress(ctx, &awsec2.AllocateAddressInput{}))
	cloudtest.Must[*awsec2.AssociateAddressOutput](t)(l.AssociateAddress(ctx, &awsec2.AssociateAddressInput{AllocationId: eip.AllocationId, InstanceId: i.InstanceId}))
	for range 7 { // eight addresses, one of them taken
		cloudtest.Must[*awsec2.AllocateAddressOutput](t)(l.AllocateAddress(ctx, &awsec2.AllocateAddressInput{}))
	}
	_, err := l.AllocateAddress(ctx, &awsec2.AllocateAddressInput{})
	cloudtest.Refused(t, err, "AddressLimitExceeded")
	_, err = l.RunInstances(ctx, s.RunInput())
	cloudtest.Refused(t, err, "InsufficientAddressCapacity")
}

// TestPendingAddress: an address cannot be associated with a pending instance, and moves by itself
// unless that is forbidden.
func TestPendingAddress(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	ctx := t.Context()
	first := l.Run(t, s.RunInput())
	hold := make(chan struct{})
	l.Machines.SetHold(hold)
	second := cloudtest.Must[*awsec2.RunInstancesOutput](t)(l.RunInstances(ctx, s.RunInput())).Instances[0]
	eip := cloudtest.Must[*awsec2.AllocateAddressOutput](t)(l.AllocateAddress(ctx, &awsec2.AllocateAddressInput{}))
	associate := func(id *string, reassociate *bool) error {
		_, err := l.AssociateAddress(ctx, &awsec2.AssociateAddressInput{AllocationId: eip.AllocationId, InstanceId: id, AllowReassociation: reassociate})
		return err
	}
	cloudtest.Refused(t, associate(first.InstanceId, nil), "")
	cloudtest.Refused(t, associate(second.InstanceId, nil), "InvalidInstanceID")
	hold <- struct{}{}
	l.Await(t, *second.InstanceId, types.InstanceStateNameRunning)
	cloudtest.Refused(t, associate(second.InstanceId, aws.Bool(false)), "Resource.AlreadyAssociated")
	cloudtest.Refused(t, associate(second.InstanceId, nil), "")
	if l.Instance(t, *first.InstanceId).PublicIpAddress != nil || *l.Instance(t, *second.InstanceId).PublicIpAddress != *eip.PublicIp {
		t.Error("the address did not move")
	}
	found := cloudtest.Must[*awsec2.DescribeAddressesAttributeOutput](t)(l.DescribeAddressesAttribute(ctx, &awsec2.DescribeAddressesAttributeInput{Attribute: types.AddressAttributeNameDomainName})).Addresses
	if len(found) != 1 || *found[0].PublicIp != *eip.PublicIp || found[0].PtrRecord != nil {
		t.Errorf("attributes: %+v", found)
	}
}
