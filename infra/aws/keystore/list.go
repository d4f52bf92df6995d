package keystore

import (
	"context"
	"fmt"
	"iter"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// List yields where the keys of a cluster are, or of every cluster if that is empty, as the tags of parameters say.
func List(ctx context.Context, c *aws.Client, cluster string) iter.Seq2[Config, error] {
	filter := func(key string, values ...string) types.ParameterStringFilter {
		return types.ParameterStringFilter{Key: sdk.String("tag:" + key), Values: values}
	}
	filters := []types.ParameterStringFilter{filter(aws.TagKind, kind), filter(aws.TagResource, pki.NameOwner)}
	if cluster != "" {
		filters = append(filters, filter(aws.TagCluster, cluster))
	}
	pages := ssm.NewDescribeParametersPaginator(c.SSM, &ssm.DescribeParametersInput{ParameterFilters: filters})
	return func(yield func(Config, error) bool) {
		parameters := aws.Each(ctx, "list key stores", pages, func(page *ssm.DescribeParametersOutput) ([]types.ParameterMetadata, error) {
			return page.Parameters, nil
		})
		for p, err := range parameters {
			var of string
			if err == nil {
				of, err = clusterOf(ctx, c, sdk.ToString(p.Name))
			}
			if err != nil {
				yield(Config{}, err)
				return
			}
			prefix, owner := strings.CutSuffix(sdk.ToString(p.Name), pki.NameOwner)
			if owner && of != "" && !yield(Config{Cluster: of, Prefix: prefix}, nil) {
				return
			}
		}
	}
}

// clusterOf returns the cluster in the tags of a parameter, or nothing if somebody has deleted the parameter meanwhile.
// DescribeParameters does not tell tags.
func clusterOf(ctx context.Context, c *aws.Client, name string) (string, error) {
	out, err := c.SSM.ListTagsForResource(ctx, &ssm.ListTagsForResourceInput{ResourceType: types.ResourceTypeForTaggingParameter, ResourceId: &name})
	if err = aws.Ignore(err, "InvalidResourceId"); err != nil {
		return "", fmt.Errorf("list key stores: %w", err)
	}
	if out == nil {
		return "", nil
	}
	for _, t := range out.TagList {
		if sdk.ToString(t.Key) == aws.TagCluster {
			return sdk.ToString(t.Value), nil
		}
	}
	return "", nil
}
