package machines_test

import (
	"fmt"
	"slices"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestGuessedToken: somebody else in the account has launched instances of their own with every client token that can be
// computed from the machine. The machine gets another instance, and theirs are left alone.
func TestGuessedToken(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	config := providertest.WorkerConfig(network)
	name, subnet := config["name"].(string), network.Get("ref").(providertest.Values)["subnets"].([]any)[0].(providertest.Values)["id"].(string)
	var baits []string
	for round := range 20 {
		generation := "" // of a machine without predecessors
		if round > 0 {
			generation = fmt.Sprintf("/%d", round)
		}
		bait := providertest.Answer[*ec2.RunInstancesOutput](t)(c.Client.EC2.RunInstances(t.Context(), &ec2.RunInstancesInput{
			ClientToken: sdk.String(infraaws.ClientToken("demo", infraaws.KindMachine, name, subnet, generation, "")),
			ImageId:     sdk.String(account.ImageID), InstanceType: types.InstanceTypeT3Small, MinCount: sdk.Int32(1), MaxCount: sdk.Int32(1), SubnetId: &subnet,
			PrivateIpAddress:  sdk.String(fmt.Sprintf("10.240.0.%d", 100+round)), // the machine's own is not taken
			TagSpecifications: []types.TagSpecification{infraaws.TagSpecification(types.ResourceTypeInstance, map[string]string{infraaws.TagCluster: "ada", infraaws.TagResource: name})},
		})).Instances[0]
		baits = append(baits, *bait.InstanceId)
	}
	worker.Must(config)
	if id := worker.Get("id").(string); slices.Contains(baits, id) {
		t.Fatalf("the machine is the instance of somebody else, %s", id)
	}
	found := providertest.Answer[*ec2.DescribeInstancesOutput](t)(c.Client.EC2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: baits}))
	for _, r := range found.Reservations {
		if tags := infraaws.TagMap(r.Instances[0].Tags); tags[infraaws.TagClaim] != "" {
			t.Errorf("the instance %s of somebody else was claimed: %v", *r.Instances[0].InstanceId, tags)
		}
	}
}
