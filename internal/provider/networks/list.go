package networks

import (
	"context"
	"iter"

	"github.com/hashicorp/terraform-plugin-framework/list"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/balancer"
	awsnetwork "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/owned"
)

// NewNetworkList returns the list of networks.
func NewNetworkList() list.ListResource {
	return &owned.List{Lister: newNetwork().Lister("networks", " A network in an adopted VPC is not listed.",
		func(ctx context.Context, c *infraaws.Client, cluster string) iter.Seq2[owned.Found, error] {
			return owned.Each(awsnetwork.List(ctx, c, cluster), owned.OfCluster)
		})}
}

// NewNLBList returns the list of network load balancers.
func NewNLBList() list.ListResource {
	return &owned.List{Lister: newNLB().Lister("Network Load Balancers", " Both of a cluster are one resource.",
		func(ctx context.Context, c *infraaws.Client, cluster string) iter.Seq2[owned.Found, error] {
			return owned.Each(balancer.List(ctx, c, cluster), owned.OfCluster)
		})}
}
