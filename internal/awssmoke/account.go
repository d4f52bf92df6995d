package main

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/keystore"
)

// account is the AWS account of the environment, which this command only reads.
type account struct {
	client  *infraaws.Client
	cluster string
	id, arn string

	mu       sync.Mutex
	refusals []infraaws.Refusal // of this command's own calls
}

// openAccount takes the account that the environment and the shared configuration files name.
func openAccount(ctx context.Context, cluster string) (*account, error) {
	a := &account{cluster: cluster}
	client, err := infraaws.New(ctx, infraaws.Config{Refused: func(_ context.Context, r infraaws.Refusal) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.refusals = append(a.refusals, r)
	}})
	a.client = client
	return a, err
}

func (a *account) identify(ctx context.Context) (err error) {
	a.id, a.arn, err = a.client.Caller(ctx)
	return err
}

// secrets returns the parts of the credentials that no report may contain.
func (a *account) secrets(ctx context.Context) []string {
	c, err := a.client.STS.Options().Credentials.Retrieve(ctx)
	if err != nil {
		return nil // then no call was made with them
	}
	return []string{c.AccessKeyID, c.SecretAccessKey, c.SessionToken}
}

func (a *account) refused() []infraaws.Refusal {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.refusals)
}

// parameterPath is the path of a cluster's parameters.
func parameterPath(cluster string) string {
	return path.Dir(strings.TrimSuffix(keystore.DefaultPrefix(cluster), "/"))
}

// leftovers returns what exists of the cluster: the resources with the cluster's or the trial's
// tag, without terminated instances, and the parameters below the cluster's path.
func (a *account) leftovers(ctx context.Context) ([]string, error) {
	tagged, err := a.tagged(ctx)
	if err != nil {
		return nil, err
	}
	left, err := a.withoutTerminated(ctx, tagged)
	if err != nil {
		return nil, err
	}
	pages := ssm.NewGetParametersByPathPaginator(a.client.SSM, &ssm.GetParametersByPathInput{Path: sdk.String(parameterPath(a.cluster)), Recursive: sdk.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the parameters: %w", err)
		}
		for _, p := range page.Parameters {
			left = append(left, "parameter "+sdk.ToString(p.Name))
		}
	}
	slices.Sort(left)
	return left, nil
}

// tagged returns the kinds of the resources with the cluster's or the trial's tag, by id.
func (a *account) tagged(ctx context.Context) (map[string]types.ResourceType, error) {
	found := map[string]types.ResourceType{}
	pages := ec2.NewDescribeTagsPaginator(a.client.EC2, &ec2.DescribeTagsInput{Filters: []types.Filter{
		{Name: sdk.String("key"), Values: []string{infraaws.TagCluster, tagTrial}},
		{Name: sdk.String("value"), Values: []string{a.cluster}},
	}})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the resources with the cluster's tags: %w", err)
		}
		for _, tag := range page.Tags {
			found[sdk.ToString(tag.ResourceId)] = tag.ResourceType
		}
	}
	return found, nil
}

// withoutTerminated returns resources as text. EC2 shows a terminated instance, with its tags, for
// about an hour.
func (a *account) withoutTerminated(ctx context.Context, tagged map[string]types.ResourceType) (left []string, err error) {
	var instances []string
	for id, kind := range tagged {
		if kind == types.ResourceTypeInstance {
			instances = append(instances, id)
		} else {
			left = append(left, string(kind)+" "+id)
		}
	}
	if len(instances) == 0 {
		return left, nil
	}
	pages := ec2.NewDescribeInstancesPaginator(a.client.EC2, &ec2.DescribeInstancesInput{Filters: []types.Filter{{Name: sdk.String("instance-id"), Values: instances}}})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, fmt.Errorf("list the instances: %w", err)
		}
		for _, r := range page.Reservations {
			for _, i := range r.Instances {
				if i.State == nil || i.State.Name != types.InstanceStateNameTerminated {
					left = append(left, "instance "+sdk.ToString(i.InstanceId))
				}
			}
		}
	}
	return left, nil
}

// settling is how long what was deleted may still be listed.
var settling = 3 * time.Minute

// checkLeftovers fails if anything of the cluster is left.
func (t *trial) checkLeftovers(ctx context.Context) error {
	return eventually(ctx, settling, func(ctx context.Context) (err error) {
		if t.report.Leftovers, err = t.account.leftovers(ctx); err != nil {
			return err
		}
		if n := len(t.report.Leftovers); n > 0 {
			return fmt.Errorf("%d left: %s", n, strings.Join(t.report.Leftovers, ", "))
		}
		return nil
	})
}
