// Package balancer makes a Network Load Balancer in front of API servers, with its target group and its listener. How
// machines and networks are made may not enter: it is given their ids.
package balancer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

const kind = "load-balancer"

// Names of the load balancers of a cluster: the one for its machines, and the one that faces the internet.
const (
	Internal = "internal"
	Public   = "public"
)

// NoticeDelay is how long a Network Load Balancer takes to notice that an API server is not ready: two
// checks, the timeout of one, and as long again for AWS to pass that on to its nodes.
const NoticeDelay = 20 * time.Second

// Spec is the wanted state of a Network Load Balancer in front of the API servers, with its target
// group and its listener.
type Spec struct {
	Cluster, Name string // Name is unique in the cluster
	Public        bool   // whether it faces the internet
	VPCID         string
	// Subnets are those in which the load balancer may be, by availability zone, the preferred ones first. It is
	// in one of each zone, and stays in the one in which it is.
	Subnets     map[string][]Subnet
	GroupID     string   // its security group
	InstanceIDs []string // of the controllers
	StoppedIDs  []string // those of them that are stopped, which AWS does not take as new targets
	Tags        map[string]string
	RemoveTags  []string
	// Claim says who owns the load balancer. Objects of other owners are neither changed nor
	// deleted.
	Claim aws.Claim
}

// Subnet is a subnet for a load balancer, and the private address that it takes there if it is made there
// and is internal; the zero address is any.
type Subnet struct {
	ID      string
	Address netip.Addr
}

// Balancer is a Network Load Balancer as found in AWS.
type Balancer struct {
	ARN     string
	DNSName string
	ZoneID  string // hosted zone of DNSName, for an alias record in Route 53
	VPCID   string
	Public  bool
	Cluster string            // from its tags
	Tags    map[string]string // of the load balancer
	Claim   aws.Claim
	// Unsettled are the ARNs of the objects with a claim that is not settled.
	Unsettled []string
}

// nameLimit is the longest name of a load balancer and of a target group.
// https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_CreateLoadBalancer.html
const nameLimit = 32

// namePrefix begins the name of every load balancer. Policies name it. "k8s-" is that of the AWS Load Balancer
// Controller.
const namePrefix = "kfs-"

// awsName returns the name in AWS of the load balancer and of its target group, which is all that finds
// them. A long one is cut and ends with a digest of the whole.
func (s Spec) awsName() string {
	name := namePrefix + s.Cluster + "-" + s.Name
	if len(name) <= nameLimit {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.TrimRight(name[:nameLimit-9], "-") + "-" + hex.EncodeToString(sum[:4])
}

func (s Spec) scheme() types.LoadBalancerSchemeEnum {
	if s.Public {
		return types.LoadBalancerSchemeEnumInternetFacing
	}
	return types.LoadBalancerSchemeEnumInternal
}

// about says which load balancer an error is about. A ClaimedError names it itself.
func (s Spec) about(err error) error {
	if err == nil || aws.IsClaimed(err) {
		return err
	}
	return fmt.Errorf("network load balancer %s: %w", s.awsName(), err)
}

// Ensure makes the load balancer, or continues with what an interrupted run left, and brings it to
// what is wanted in place. arn is that of the load balancer, empty on creation. It returns once the load
// balancer forwards, which takes minutes. With an error it returns what exists by then; nothing if the
// error is a ClaimedError.
func Ensure(ctx context.Context, c *aws.Client, arn string, spec Spec) (Balancer, error) {
	p, err := claimParts(ctx, c, arn, spec)
	if err != nil {
		if arn == "" {
			err = aws.Raced(err)
		}
		return Balancer{}, spec.about(err)
	}
	if p, err = makeParts(ctx, c, p, spec); err != nil {
		if p.balancer == nil || aws.IsClaimed(err) {
			return Balancer{}, spec.about(aws.Raced(err))
		}
		return p.found(), spec.about(err)
	}
	for _, r := range repairsOf(c, spec, p) {
		if err := r.Fix(ctx); err != nil {
			return p.found(), spec.about(fmt.Errorf("repair %q: %w", finding.Words(r.Findings), err))
		}
	}
	if err := c.RemoveTags(ctx, p.arns(), spec.RemoveTags, tagsOf(c, spec)); err != nil {
		return p.found(), spec.about(err)
	}
	return p.found(), nil
}

// Observe returns how the load balancer differs from what is wanted. The findings have no subject.
// The error is ErrNotFound if there is none, and a ClaimedError if it belongs to another owner.
func Observe(ctx context.Context, c *aws.Client, arn string, spec Spec) (Balancer, []finding.Finding, error) {
	p, err := findParts(ctx, c, spec)
	if err == nil {
		err = spec.owns(p, arn)
	}
	if err == nil && p.balancer == nil {
		err = fmt.Errorf("it %w", aws.ErrNotFound)
	}
	if err != nil {
		return Balancer{}, nil, spec.about(err)
	}
	return p.found(), aws.FindingsOf(repairsOf(c, spec, p)), nil
}

// Find returns a load balancer by the specification's cluster and name, whoever owns it. The error
// is ErrNotFound if there is none.
func Find(ctx context.Context, c *aws.Client, spec Spec) (Balancer, error) {
	p, err := findParts(ctx, c, spec)
	if err == nil && p.balancer == nil {
		err = fmt.Errorf("it %w", aws.ErrNotFound)
	}
	if err != nil {
		return Balancer{}, spec.about(err)
	}
	return p.found(), nil
}

// Delete deletes the load balancer with its listener and its target group. What does not exist is
// no error. The error is a ClaimedError if it belongs to another owner.
func Delete(ctx context.Context, c *aws.Client, arn string, spec Spec) error {
	p, err := findParts(ctx, c, spec)
	if err == nil {
		err = spec.owns(p, arn)
	}
	if err == nil && p.balancer != nil {
		_, err = c.ELB.DeleteLoadBalancer(ctx, &elb.DeleteLoadBalancerInput{LoadBalancerArn: p.balancer.LoadBalancerArn})
		if aws.IsCode(err, "OperationNotPermitted") {
			err = fmt.Errorf("%w: its deletion protection was turned on outside Terraform: turn it off, then apply again", err)
		}
	}
	if err == nil && p.group != nil {
		// Listeners of a load balancer that has just been deleted may still use it.
		_, err = c.ELB.DeleteTargetGroup(ctx, &elb.DeleteTargetGroupInput{TargetGroupArn: p.group.TargetGroupArn}, c.RetryELB(aws.ConsistencyAttempts, "ResourceInUse"))
		err = aws.Ignore(err, "TargetGroupNotFound")
	}
	return spec.about(err)
}

func tagsOf(c *aws.Client, spec Spec) map[string]string {
	out := c.ClusterTags(spec.Cluster, kind, spec.Name, spec.Tags)
	maps.Copy(out, spec.Claim.Tags())
	return out
}

// judge decides about the load balancer and its target group. arn is that of the load balancer that the
// caller knows; empty if it knows none. take are the ARNs of what has to be claimed first.
func (s Spec) judge(p parts, arn string) (take []string, err error) {
	known := arn != "" && (p.balancer == nil || sdk.ToString(p.balancer.LoadBalancerArn) == arn)
	for _, part := range p.arns() {
		left, err := s.Claim.Judge("network load balancer "+s.awsName(), aws.OwnerOf(p.tags[part]), known)
		if err != nil {
			return nil, err
		}
		if left {
			take = append(take, part)
		}
	}
	return take, nil
}

// owns returns a ClaimedError unless all parts are ours already.
func (s Spec) owns(p parts, arn string) error {
	s.Claim.Adopt = false
	take, err := s.judge(p, arn)
	if err == nil && len(take) > 0 {
		err = &aws.ClaimedError{What: "network load balancer " + s.awsName(), Owner: aws.ClaimIn(p.tags[take[0]]), Known: arn != ""}
	}
	return err
}

// CheckClaim returns an error if Ensure would find the load balancer of another owner, or one that
// cannot become what is wanted. It writes nothing.
func CheckClaim(ctx context.Context, c *aws.Client, arn string, spec Spec) error {
	p, err := findParts(ctx, c, spec)
	if err == nil {
		_, err = spec.judge(p, arn)
	}
	if err == nil {
		err = p.fits(spec)
	}
	return spec.about(err)
}

// claimParts returns the parts that exist, claimed before anything is changed.
func claimParts(ctx context.Context, c *aws.Client, arn string, spec Spec) (parts, error) {
	p, err := findParts(ctx, c, spec)
	if err != nil {
		return p, err
	}
	take, err := spec.judge(p, arn)
	if err != nil || len(take) == 0 {
		return p, err
	}
	if err := c.TakeOver(ctx, spec.Claim, take); err != nil {
		return p, err
	}
	spec.Claim.Adopt = false // it has been written by now
	err = aws.ReadBack(ctx, func(ctx context.Context) error {
		if p, err = findParts(ctx, c, spec); err == nil {
			_, err = spec.judge(p, sdk.ToString(p.balancerARN()))
		}
		return err
	})
	return p, err
}

// errOther says that an object of the name exists that cannot become what is wanted.
var errOther = errors.New("delete it, then apply again")

// fits reports properties of the parts that are not as wanted and cannot be changed.
func (p parts) fits(spec Spec) error {
	if b := p.balancer; b != nil && b.Type != types.LoadBalancerTypeEnumNetwork {
		return fmt.Errorf("it exists as a load balancer of the type %s: %w", b.Type, errOther)
	}
	if b := p.balancer; b != nil && (sdk.ToString(b.VpcId) != spec.VPCID || b.Scheme != spec.scheme()) {
		return fmt.Errorf("it exists in VPC %s as %s, wanted %s as %s: %w", sdk.ToString(b.VpcId), b.Scheme, spec.VPCID, spec.scheme(), errOther)
	}
	if b := p.balancer; b != nil && len(b.SecurityGroups) == 0 {
		return fmt.Errorf("it was made without a security group, and none can be added: %w", errOther)
	}
	if g := p.group; g != nil && (sdk.ToString(g.VpcId) != spec.VPCID || g.Protocol != types.ProtocolEnumTcp || sdk.ToInt32(g.Port) != aws.PortAPI || g.TargetType != types.TargetTypeEnumInstance) {
		return fmt.Errorf("its target group exists in VPC %s for %s %d and targets of type %s, wanted %s, TCP %d and instance: %w",
			sdk.ToString(g.VpcId), g.Protocol, sdk.ToInt32(g.Port), g.TargetType, spec.VPCID, aws.PortAPI, errOther)
	}
	return nil
}
