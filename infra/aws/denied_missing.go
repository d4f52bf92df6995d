package aws

import (
	"context"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go/middleware"
)

// nameMissing is a middleware for a policy that wants tags of a resource. EC2 refuses a request about
// a resource that does not exist, or that it does not know yet, with UnauthorizedOperation then: the
// resource has no tags. This asks whether it exists, and returns EC2's answer to that, such as
// InvalidVpcID.NotFound, if it does not. It does so at each attempt, so that a call that retries
// until a new resource is known also retries here.
//
// Seen with terminated instances: https://github.com/aws/karpenter-provider-aws/issues/2100,
// https://github.com/runs-on/terraform-aws-runs-on/issues/60
func nameMissing(look func(ctx context.Context, id string) error) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("NameMissing",
			func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
				out, meta, err := next.HandleFinalize(ctx, in)
				if !IsCode(err, "UnauthorizedOperation") {
					return out, meta, err
				}
				service, resource, _ := strings.Cut(readDenied(err).Resource, "/")
				if !strings.Contains(service, ":ec2:") { // a role that is passed
					return out, meta, err
				}
				if missing := look(ctx, resource); IsCode(missing, notYet...) {
					return out, meta, missing
				}
				return out, meta, err
			}), "Retry", middleware.After)
	}
}

// look asks EC2 for one resource. The error is EC2's if there is none. For a resource that cannot
// be asked for, such as *, there is no error.
func look(ctx context.Context, client *ec2.Client, id string) (err error) {
	ids, once := []string{id}, func(o *ec2.Options) { o.RetryMaxAttempts = 1 }
	switch kind, _, _ := strings.Cut(id, "-"); kind {
	case "eipalloc":
		_, err = client.DescribeAddresses(ctx, &ec2.DescribeAddressesInput{AllocationIds: ids}, once)
	case "eice":
		_, err = client.DescribeInstanceConnectEndpoints(ctx, &ec2.DescribeInstanceConnectEndpointsInput{InstanceConnectEndpointIds: ids}, once)
	case "eni":
		_, err = client.DescribeNetworkInterfaces(ctx, &ec2.DescribeNetworkInterfacesInput{NetworkInterfaceIds: ids}, once)
	case "i":
		_, err = client.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: ids}, once)
	case "igw":
		_, err = client.DescribeInternetGateways(ctx, &ec2.DescribeInternetGatewaysInput{InternetGatewayIds: ids}, once)
	case "rtb":
		_, err = client.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{RouteTableIds: ids}, once)
	case "sg":
		_, err = client.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{GroupIds: ids}, once)
	case "subnet":
		_, err = client.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{SubnetIds: ids}, once)
	case "vol":
		_, err = client.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{VolumeIds: ids}, once)
	case "vpc":
		_, err = client.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{VpcIds: ids}, once)
	}
	return err
}
