package cluster_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// testIdentity: the cluster and EC2 say the same about each node, and what controllers of the cloud look for has the
// tags by which they find it.
func (c *cluster) testIdentity(t *testing.T) {
	api, ctx := ec2.NewFromConfig(suite.AWS()), t.Context()
	var nodes corev1.NodeList
	if err := json.Unmarshal([]byte(c.Kubectl(t, "get", "nodes", "-o", "json")), &nodes); err != nil {
		t.Fatal(err)
	}
	reservations := harness.Must[*ec2.DescribeInstancesOutput](t)(api.DescribeInstances(ctx, &ec2.DescribeInstancesInput{
		Filters: []types.Filter{{Name: aws.String("instance-state-name"), Values: []string{"pending", "running", "stopping", "stopped"}}}})).Reservations
	if len(reservations) != 6 {
		t.Errorf("%d instances, wanted 6", len(reservations))
	}
	role := func(r types.Reservation) string { return infraaws.TagMap(r.Instances[0].Tags)[infraaws.TagRole] }
	addresses := harness.Must[*ec2.DescribeAddressesOutput](t)(api.DescribeAddresses(ctx, &ec2.DescribeAddressesInput{})).Addresses
	lb := slices.IndexFunc(reservations, func(r types.Reservation) bool { return role(r) == "lb" })
	if lb < 0 || len(addresses) != 1 || aws.ToString(addresses[0].InstanceId) != *reservations[lb].Instances[0].InstanceId ||
		c.Endpoint != "https://"+*addresses[0].PublicIp+":6443" {
		t.Errorf("the endpoint is %s, the Elastic IPs are %v", c.Endpoint, addresses)
	}
	reservations = slices.DeleteFunc(reservations, func(r types.Reservation) bool { return role(r) != "worker" })
	if len(nodes.Items) != len(reservations) || len(nodes.Items) == 0 {
		t.Fatalf("%d nodes, %d instances", len(nodes.Items), len(reservations))
	}
	var subnets []string
	for _, r := range reservations {
		i := r.Instances[0]
		name := infraaws.TagMap(i.Tags)["k8s-from-scratch/name"]
		at := slices.IndexFunc(nodes.Items, func(n corev1.Node) bool { return n.Name == name })
		if at < 0 {
			t.Fatalf("no node %s", name)
		}
		n, zone := nodes.Items[at], *i.Placement.AvailabilityZone
		if want := "aws:///" + zone + "/" + *i.InstanceId; n.Spec.ProviderID != want {
			t.Errorf("%s has the provider ID %q, wanted %q", name, n.Spec.ProviderID, want)
		}
		for label, want := range map[string]string{
			corev1.LabelTopologyRegion: strings.TrimRight(zone, "abcdef"), corev1.LabelTopologyZone: zone, corev1.LabelInstanceTypeStable: string(i.InstanceType),
		} {
			if n.Labels[label] != want {
				t.Errorf("%s: label %s is %q, wanted %q", name, label, n.Labels[label], want)
			}
		}
		if key := ownedKey(i.Tags); key == "" {
			t.Errorf("%s has no tag of a cluster: %v", name, i.Tags)
		}
		var ids []string
		for _, g := range i.SecurityGroups {
			ids = append(ids, *g.GroupId)
		}
		groups := harness.Must[*ec2.DescribeSecurityGroupsOutput](t)(api.DescribeSecurityGroups(ctx, &ec2.DescribeSecurityGroupsInput{GroupIds: ids})).SecurityGroups
		if tagged := slices.DeleteFunc(groups, func(g types.SecurityGroup) bool { return ownedKey(g.Tags) == "" }); len(tagged) != 1 {
			t.Errorf("%s has %d security groups with the tag of a cluster, wanted 1 of %q", name, len(tagged), ids)
		}
		subnets = append(subnets, *i.SubnetId)
	}
	for _, s := range harness.Must[*ec2.DescribeSubnetsOutput](t)(api.DescribeSubnets(ctx, &ec2.DescribeSubnetsInput{SubnetIds: subnets})).Subnets {
		if ownedKey(s.Tags) == "" || infraaws.TagMap(s.Tags)["kubernetes.io/role/elb"] != "1" || infraaws.TagMap(s.Tags)["kubernetes.io/role/internal-elb"] != "" {
			t.Errorf("tags of the public subnet %s: %v", *s.SubnetId, s.Tags)
		}
	}
}

// ownedKey returns the key of the tag of Kubernetes' cloud integrations, empty if there is none.
func ownedKey(tags []types.Tag) string {
	for key, value := range infraaws.TagMap(tags) {
		if strings.HasPrefix(key, "kubernetes.io/cluster/") && value == "owned" {
			return key
		}
	}
	return ""
}
