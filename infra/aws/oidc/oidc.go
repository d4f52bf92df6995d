// Package oidc makes IAM trust the tokens of a cluster's service accounts: the OpenID Connect provider in IAM, and the
// issuer's documents in a bucket. Buckets, roles, and what tokens say may not enter.
package oidc

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/object"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/issuer"
)

const kind = "oidc-provider"

// DefaultAudience is the audience of tokens for STS.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc.html
const DefaultAudience = "sts.amazonaws.com"

// Spec is the wanted state of a provider and of its issuer's documents.
type Spec struct {
	Cluster string
	ARN     string // of the provider, see ARN
	Issuer  string // its URL
	// Audiences are the provider's client ids: a token must name one of them.
	Audiences     []string
	PublicKeysPEM string // of the tokens, the signing one first
	// Place is where the documents are written; Key is what their keys begin with. Without a bucket somebody else
	// publishes them.
	Place object.Ref

	Tags       map[string]string
	RemoveTags []string
	// Claim says who owns the provider. A provider of another owner is neither changed nor deleted.
	Claim aws.Claim
}

// Provider is a provider as found in IAM.
type Provider struct {
	ARN       string
	Audiences []string // sorted
	Cluster   string   // from its tags
	Tags      map[string]string
	Claim     aws.Claim
	Unsettled []string // its ARN, if its claim is not settled
}

// ARN returns the ARN of the provider of an issuer in the account of a caller.
func ARN(account, caller, issuer string) string {
	partition := "aws"
	if parts := strings.Split(caller, ":"); len(parts) > 1 {
		partition = parts[1]
	}
	return "arn:" + partition + ":iam::" + account + ":oidc-provider/" + strings.TrimPrefix(issuer, "https://")
}

// Ensure publishes the documents, makes the provider or continues with what an interrupted run left, and waits until
// anybody can read the documents at the issuer's URL. known says that the caller has made the provider before. With an
// error it returns the provider if it exists; nothing if the error is a ClaimedError.
func Ensure(ctx context.Context, c *aws.Client, known bool, s Spec) (Provider, error) {
	documents, err := issuer.Of(s.Issuer, s.PublicKeysPEM)
	if err != nil {
		return Provider{}, err
	}
	p, err := Find(ctx, c, s)
	exists := err == nil
	if exists {
		p, err = s.claimed(ctx, c, p, known)
	} else if errors.Is(err, aws.ErrNotFound) {
		err = nil
	}
	if err != nil {
		return Provider{}, aws.Raced(err)
	}
	if err := s.publish(ctx, c, documents, exists); err != nil {
		return p, err
	}
	if !exists { // only now: IAM may look at what the issuer shows
		if p, err = s.create(ctx, c); err != nil {
			return Provider{}, aws.Raced(err)
		}
	}
	repairs := s.repairs(c, p)
	for _, r := range repairs {
		if err := r.Fix(ctx); err != nil {
			return p, fmt.Errorf("repair %q: %w", finding.Words(r.Findings), err)
		}
	}
	if err := c.RemoveTags(ctx, []string{s.ARN}, s.RemoveTags, s.tags(c)); err != nil {
		return p, err
	}
	if !exists || len(repairs) > 0 {
		if p, err = s.settled(ctx, c, p); err != nil {
			return p, err
		}
	}
	return p, s.await(ctx, c, documents)
}

// settled waits until IAM shows the provider as it was written: IAM is consistent after some seconds.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot.html
func (s Spec) settled(ctx context.Context, c *aws.Client, p Provider) (Provider, error) {
	for attempt := 0; ; attempt++ {
		now, err := Find(ctx, c, s)
		if err == nil && len(s.repairs(c, now)) == 0 {
			return now, nil
		}
		if err != nil && !errors.Is(err, aws.ErrNotFound) || attempt >= aws.ConsistencyAttempts {
			return p, err
		}
		if err := aws.Pause(ctx, attempt); err != nil {
			return p, err
		}
	}
}

// Observe returns how the provider, and what its issuer shows, differ from what is wanted. The findings have no
// subject. Without public keys nothing is compared with what the issuer shows. unseen says why nobody knows that: the issuer did not
// answer. The error is ErrNotFound if there is no provider, and a ClaimedError if it belongs to another owner.
func Observe(ctx context.Context, c *aws.Client, s Spec) (p Provider, differs []finding.Finding, unseen, err error) {
	if p, err = Find(ctx, c, s); err == nil {
		err = s.owns(p, true)
	}
	if err != nil {
		return Provider{}, nil, nil, err
	}
	differs = aws.FindingsOf(s.repairs(c, p))
	if s.PublicKeysPEM == "" {
		return p, differs, nil, nil
	}
	documents, err := issuer.Of(s.Issuer, s.PublicKeysPEM)
	if err != nil {
		return Provider{}, nil, nil, err
	}
	shown, unseen := s.differences(ctx, c, documents)
	return p, append(differs, shown...), unseen, nil
}

// Find returns a provider by its ARN, whoever owns it. The error is ErrNotFound if there is none.
func Find(ctx context.Context, c *aws.Client, s Spec) (Provider, error) {
	out, err := c.IAM.GetOpenIDConnectProvider(ctx, &iam.GetOpenIDConnectProviderInput{OpenIDConnectProviderArn: &s.ARN})
	if aws.IsCode(err, "NoSuchEntity") {
		return Provider{}, fmt.Errorf("the OpenID Connect provider in IAM %w", aws.ErrNotFound)
	}
	if err != nil {
		return Provider{}, fmt.Errorf("look at the OpenID Connect provider in IAM: %w", err)
	}
	tags := aws.IAMTagMap(out.Tags)
	p := Provider{ARN: s.ARN, Audiences: slices.Sorted(slices.Values(out.ClientIDList)), Cluster: tags[aws.TagCluster], Tags: tags, Claim: aws.ClaimIn(tags)}
	if aws.OwnerOf(tags).Unsettled() {
		p.Unsettled = []string{s.ARN}
	}
	return p, nil
}

// Delete deletes the provider, and the documents that Ensure has written. What does not exist is no error. left says why
// documents are left, which are public: their bucket could not be used. The error is a ClaimedError if the provider belongs to another
// owner.
func Delete(ctx context.Context, c *aws.Client, s Spec) (left, err error) {
	p, err := Find(ctx, c, s)
	gone := errors.Is(err, aws.ErrNotFound)
	if err == nil {
		err = s.owns(p, true)
	}
	if err != nil && !gone {
		return nil, err
	}
	left = s.withdraw(ctx, c)
	if !gone {
		if _, err := c.IAM.DeleteOpenIDConnectProvider(ctx, &iam.DeleteOpenIDConnectProviderInput{OpenIDConnectProviderArn: &s.ARN}); err != nil {
			return left, fmt.Errorf("delete the OpenID Connect provider in IAM: %w", err)
		}
	}
	return left, nil
}

func (s Spec) name() string { return "IAM OpenID Connect provider " + s.ARN }

// owns returns a ClaimedError unless the provider is ours already.
func (s Spec) owns(p Provider, known bool) error {
	s.Claim.Adopt = false
	take, err := s.Claim.Judge(s.name(), aws.OwnerOf(p.Tags), known)
	if err == nil && take {
		err = &aws.ClaimedError{What: s.name(), Owner: p.Claim, Known: known}
	}
	return err
}

// claimed returns a provider with our claim.
func (s Spec) claimed(ctx context.Context, c *aws.Client, p Provider, known bool) (Provider, error) {
	take, err := s.Claim.Judge(s.name(), aws.OwnerOf(p.Tags), known)
	if err != nil || !take {
		return p, err
	}
	if err := c.TakeOver(ctx, s.Claim, []string{s.ARN}); err != nil {
		return p, err
	}
	return p, aws.ReadBack(ctx, func(ctx context.Context) (err error) {
		if p, err = Find(ctx, c, s); err == nil {
			err = s.owns(p, false)
		}
		return err
	})
}

// create makes the provider. One that IAM did not show a moment ago is taken if it is ours to take.
func (s Spec) create(ctx context.Context, c *aws.Client) (Provider, error) {
	tags := s.tags(c)
	for attempt := 0; ; attempt++ {
		out, err := c.IAM.CreateOpenIDConnectProvider(ctx, &iam.CreateOpenIDConnectProviderInput{Url: &s.Issuer, ClientIDList: s.Audiences, Tags: aws.IAMTags(tags)})
		if err == nil {
			arn := sdk.ToString(out.OpenIDConnectProviderArn)
			return Provider{ARN: arn, Audiences: slices.Sorted(slices.Values(s.Audiences)), Cluster: s.Cluster, Tags: tags, Claim: s.Claim, Unsettled: []string{arn}}, nil
		}
		if !aws.IsCode(err, "EntityAlreadyExists") || attempt >= aws.ConsistencyAttempts {
			return Provider{}, fmt.Errorf("make the OpenID Connect provider in IAM: %w", err)
		}
		p, err := Find(ctx, c, s)
		if err == nil {
			return s.claimed(ctx, c, p, false)
		}
		if !errors.Is(err, aws.ErrNotFound) {
			return Provider{}, err
		}
		if err := aws.Pause(ctx, attempt); err != nil { // one that is just being deleted, or does not show yet
			return Provider{}, err
		}
	}
}

func (s Spec) tags(c *aws.Client) map[string]string {
	out := c.ClusterTags(s.Cluster, kind, "", s.Tags)
	maps.Copy(out, s.Claim.Tags())
	return out
}

// repairs are the differences of the provider in IAM.
func (s Spec) repairs(c *aws.Client, p Provider) (out []aws.Repair) {
	audience := func(name string, problem finding.Problem, fix func(context.Context) error) {
		out = append(out, aws.RepairOf(finding.Finding{Kind: finding.Audience, Target: name, Problem: problem}, fix))
	}
	for _, a := range s.Audiences {
		if !slices.Contains(p.Audiences, a) {
			audience(a, finding.Missing, func(ctx context.Context) error {
				_, err := c.IAM.AddClientIDToOpenIDConnectProvider(ctx, &iam.AddClientIDToOpenIDConnectProviderInput{OpenIDConnectProviderArn: &s.ARN, ClientID: &a})
				return err
			})
		}
	}
	for _, a := range p.Audiences {
		if !slices.Contains(s.Audiences, a) {
			audience(a, finding.NotWanted, func(ctx context.Context) error {
				_, err := c.IAM.RemoveClientIDFromOpenIDConnectProvider(ctx, &iam.RemoveClientIDFromOpenIDConnectProviderInput{OpenIDConnectProviderArn: &s.ARN, ClientID: &a})
				return err
			})
		}
	}
	wanted := s.tags(c)
	if differs := aws.DiffTags(wanted, p.Tags); len(differs) > 0 {
		out = append(out, aws.Repair{Findings: differs, Fix: func(ctx context.Context) error { return c.WriteTags(ctx, []string{s.ARN}, wanted) }})
	}
	return out
}
