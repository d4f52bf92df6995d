package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
)

// elbTagged is how many resources one call of Elastic Load Balancing tags, or reads the tags of.
const elbTagged = 20

// byService splits what has tags: what is in EC2 has an id, and a load balancer, a target group and an OpenID Connect
// provider of IAM have an ARN.
func byService(things []string) (ec2IDs, elbARNs, iamARNs []string) {
	for _, t := range things {
		switch {
		case !strings.HasPrefix(t, "arn:"):
			ec2IDs = append(ec2IDs, t)
		case strings.Contains(t, ":oidc-provider/"):
			iamARNs = append(iamARNs, t)
		default:
			elbARNs = append(elbARNs, t)
		}
	}
	return ec2IDs, elbARNs, iamARNs
}

// WriteTags writes tags on things, at most 1,000 of EC2.
func (c *Client) WriteTags(ctx context.Context, things []string, tags map[string]string) error {
	ids, arns, providers := byService(things)
	if len(ids) > 0 {
		if _, err := c.EC2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: ids, Tags: EC2Tags(tags)}, c.RetryUntilKnown()); err != nil {
			return err
		}
	}
	for some := range slices.Chunk(arns, elbTagged) {
		if _, err := c.ELB.AddTags(ctx, &elb.AddTagsInput{ResourceArns: some, Tags: ELBTags(tags)}, c.RetryELBUntilKnown()); err != nil {
			return err
		}
	}
	for _, arn := range providers {
		if _, err := c.IAM.TagOpenIDConnectProvider(ctx, &iam.TagOpenIDConnectProviderInput{OpenIDConnectProviderArn: &arn, Tags: IAMTags(tags)}); err != nil {
			return err
		}
	}
	return nil
}

// claimsOn returns the ids of the claims on things, by thing. What does not exist any more has none.
func (c *Client) claimsOn(ctx context.Context, things []string) (map[string]string, error) {
	out := map[string]string{}
	ids, arns, providers := byService(things)
	for some := range slices.Chunk(ids, FilterValues) {
		tags, err := All(ctx, ec2.NewDescribeTagsPaginator(c.EC2, &ec2.DescribeTagsInput{Filters: []types.Filter{Filter("resource-id", some...), Filter("key", TagClaim)}}),
			func(p *ec2.DescribeTagsOutput) []types.TagDescription { return p.Tags })
		if err != nil {
			return nil, err
		}
		for _, t := range tags {
			out[sdk.ToString(t.ResourceId)] = sdk.ToString(t.Value)
		}
	}
	tagged, err := c.TagsOfELB(ctx, arns)
	if err != nil {
		return nil, err
	}
	for arn, tags := range tagged {
		out[arn] = tags[TagClaim]
	}
	for _, arn := range providers {
		found, err := c.IAM.GetOpenIDConnectProvider(ctx, &iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: &arn})
		if IsCode(err, "NoSuchEntity") {
			continue
		}
		if err != nil {
			return nil, err
		}
		out[arn] = IAMTagMap(found.Tags)[TagClaim]
	}
	return out, nil
}

// TagsOfELB returns the tags of load balancers and target groups by ARN. One that does not exist any more has no entry:
// DescribeTags refuses all of its ARNs for one of them.
func (c *Client) TagsOfELB(ctx context.Context, arns []string) (map[string]map[string]string, error) {
	out := map[string]map[string]string{}
	for some := range slices.Chunk(arns, elbTagged) {
		found, err := c.ELB.DescribeTags(ctx, &elb.DescribeTagsInput{ResourceArns: some})
		if IsCode(err, "LoadBalancerNotFound", "TargetGroupNotFound") {
			if len(some) > 1 {
				for half := range slices.Chunk(some, (len(some)+1)/2) {
					tags, err := c.TagsOfELB(ctx, half)
					if err != nil {
						return nil, err
					}
					maps.Copy(out, tags)
				}
			}
			continue
		}
		if err != nil {
			return nil, err
		}
		for _, d := range found.TagDescriptions {
			out[sdk.ToString(d.ResourceArn)] = ELBTagMap(d.Tags)
		}
	}
	return out, nil
}

// RemoveTags deletes tag keys that are no longer wanted.
func (c *Client) RemoveTags(ctx context.Context, things, keys []string, wanted map[string]string) error {
	keys = slices.DeleteFunc(slices.Clone(keys), func(k string) bool { _, still := wanted[k]; return still || k != TagRoll && ReservedTag(k) })
	if len(keys) == 0 || len(things) == 0 {
		return nil
	}
	ids, arns, providers := byService(things)
	var errs []error
	if len(ids) > 0 {
		var gone []types.Tag
		for _, k := range keys {
			gone = append(gone, types.Tag{Key: sdk.String(k)})
		}
		_, err := c.EC2.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: ids, Tags: gone})
		errs = append(errs, err)
	}
	for some := range slices.Chunk(arns, elbTagged) {
		_, err := c.ELB.RemoveTags(ctx, &elb.RemoveTagsInput{ResourceArns: some, TagKeys: keys})
		errs = append(errs, err)
	}
	for _, arn := range providers {
		_, err := c.IAM.UntagOpenIDConnectProvider(ctx, &iam.UntagOpenIDConnectProviderInput{OpenIDConnectProviderArn: &arn, TagKeys: keys})
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("remove tags from %s: %w", strings.Join(things, ", "), err)
	}
	return nil
}

// OwnTags returns the tags of a resource that the user has set.
func (c *Client) OwnTags(all map[string]string) map[string]string {
	out := maps.Clone(all)
	maps.DeleteFunc(out, func(k, v string) bool { return ReservedTag(k) || c.defaultTags[k] == v })
	if len(out) == 0 {
		return nil
	}
	return out
}
