package machines_test

import (
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestGuessedToken: somebody else in the account has launched an instance of their own with the client token that the
// machine's launch will have. The machine gets another instance, and theirs is left alone.
func TestGuessedToken(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	config := providertest.WorkerConfig(network)
	name, subnet := config["name"].(string), network.Get("ref").(providertest.Values)["subnets"].([]any)[0].(providertest.Values)["id"].(string)
	bait := providertest.Answer[*ec2.RunInstancesOutput](t)(c.Client.EC2.RunInstances(t.Context(), &ec2.RunInstancesInput{
		ClientToken: sdk.String(infraaws.ClientToken("demo", infraaws.KindMachine, name, subnet, "/0")),
		ImageId:     sdk.String(account.ImageID), InstanceType: types.InstanceTypeT3Small, MinCount: sdk.Int32(1), MaxCount: sdk.Int32(1), SubnetId: &subnet,
		TagSpecifications: []types.TagSpecification{infraaws.TagSpecification(types.ResourceTypeInstance, map[string]string{infraaws.TagCluster: "ada", infraaws.TagResource: name})},
	})).Instances[0]
	worker.Must(config)
	if id := worker.Get("id"); id == *bait.InstanceId {
		t.Fatalf("the machine is the instance of somebody else, %s", id)
	}
	found := providertest.Answer[*ec2.DescribeInstancesOutput](t)(c.Client.EC2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{*bait.InstanceId}}))
	if tags := infraaws.TagMap(found.Reservations[0].Instances[0].Tags); tags[infraaws.TagClaim] != "" {
		t.Errorf("the instance of somebody else was claimed: %v", tags)
	}
}
