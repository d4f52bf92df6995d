package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/smithy-go/middleware"
)

// Errors that EC2 may return in the seconds after something was made.
// https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html
var notYet = []string{
	"InvalidVpcID.NotFound", "InvalidVpcId.NotFound", "InvalidSubnetID.NotFound", "InvalidSubnetId.NotFound",
	"InvalidRouteTableID.NotFound", "InvalidRouteTableId.NotFound",
	"InvalidInternetGatewayID.NotFound", "InvalidInternetGatewayId.NotFound", "Gateway.NotAttached",
	"InvalidGatewayID.NotFound",                                                    // of routes
	"InvalidSubnet", "InvalidElasticIpID.NotFound", "InvalidNatGatewayID.NotFound", // of NAT gateways
	"InvalidGroup.NotFound", "InvalidGroupId.NotFound", "InvalidSecurityGroupID.NotFound", "InvalidInstanceID.NotFound", "InvalidNetworkInterfaceID.NotFound", "InvalidVolume.NotFound",
	"InvalidAllocationID.NotFound", "InvalidAddressID.NotFound", "InvalidID", "InvalidPlacementGroup.Unknown",
	"InvalidInstanceConnectEndpointId.NotFound",
}

// IsUnknown reports whether EC2 does not know a resource: it does not exist, any more or yet.
func IsUnknown(err error) bool { return IsCode(err, notYet...) }

const (
	// ConsistencyAttempts lasts about half a minute: longer than EC2 takes to be consistent, and short
	// enough if something is really missing.
	ConsistencyAttempts = 20
	// DoubtAttempts lasts about three seconds: EC2 may briefly not know what existed a moment ago.
	DoubtAttempts = 7
	// AddressAttempts lasts about a minute and a half: EC2 holds the private address of a terminated
	// machine for a while.
	AddressAttempts = 50
	// unlimited is more attempts than any context lasts. The interfaces of terminated machines disappear within seconds, and
	// interfaces of load balancers may take many minutes.
	unlimited = 1 << 20
)

// RetryUntilKnown makes a call retry while EC2 does not know yet what was just made. That may also be
// an instance profile, the attachment of an internet gateway, or tags, if a policy asks for them: a refusal of one resource is retried
// DoubtAttempts times.
func (c *Client) RetryUntilKnown() func(*ec2.Options) {
	return func(o *ec2.Options) {
		o.Retryer = &codeRetryer{Retryer: c.retryers.ec2, codes: notYet, limit: ConsistencyAttempts, fresh: true}
	}
}

// RetryUntilUnused makes a deletion retry until what uses the resource has disappeared, or ctx ends. When ctx
// ends, the error is what EC2 said last, which tells what is in the way.
func (c *Client) RetryUntilUnused() func(*ec2.Options) {
	retry := c.retryers.ec2
	return func(o *ec2.Options) {
		p := &codeRetryer{Retryer: retry, codes: inUse, limit: unlimited, busy: true}
		o.Retryer = p
		o.APIOptions = append(slices.Clone(o.APIOptions), func(stack *middleware.Stack) error {
			return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("LastRefusal", p.lastRefusal), middleware.Before)
		})
	}
}

// inUse are the errors of a deletion while something still uses the resource.
var inUse = []string{"DependencyViolation", "InvalidIPAddress.InUse", "InvalidGroup.InUse", "AuthFailure.AddressInUse"}

// lastRefusal returns the last of the retryer's own errors in place of the end of the context. It
// is not for errors that say that something is not there: the end of a context must not look like
// the end of a resource.
func (p *codeRetryer) lastRefusal(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (out middleware.InitializeOutput, meta middleware.Metadata, err error) {
	out, meta, err = next.HandleInitialize(ctx, in)
	if err != nil && ctx.Err() != nil && p.last != nil && !IsCode(err, p.codes...) {
		err = fmt.Errorf("%w (%w: it was so until then)", p.last, context.Cause(ctx))
	}
	return out, meta, err
}

// RetryInDoubt makes a call retry while EC2 may briefly not know what existed a moment ago.
func (c *Client) RetryInDoubt() func(*ec2.Options) { return c.RetryOn(DoubtAttempts, notYet...) }

// RetryUntilFree makes a launch retry while EC2 holds its private address, and as RetryInDoubt does.
func (c *Client) RetryUntilFree() func(*ec2.Options) {
	return c.RetryOn(AddressAttempts, append([]string{"InvalidIPAddress.InUse"}, notYet...)...)
}

// RetryOn adds error codes to those the SDK retries, for one call.
func (c *Client) RetryOn(attempts int, codes ...string) func(*ec2.Options) {
	return func(o *ec2.Options) { o.Retryer = &codeRetryer{Retryer: c.retryers.ec2, codes: codes, limit: attempts} }
}

// codeRetryer retries its own codes up to limit times, with short pauses and without spending retry
// tokens. It leaves everything else to the wrapped retryer. It is for one call.
type codeRetryer struct {
	sdk.Retryer
	codes []string
	limit int
	fresh bool // whether EC2 may not know tags, instance profiles and attachments yet
	busy  bool // whether another service of AWS may have the resource still
	seen  int  // how often one of the codes was returned
	doubt int  // how often one resource was refused
	last  error
}

// own reports whether the error is one of those that the retryer retries itself.
func (p *codeRetryer) own(err error) bool {
	return IsCode(err, p.codes...) || p.unknownTags(err) || p.fresh && (UnknownProfile(err) || unknownAttachment(err)) || p.busy && heldByService(err)
}

// unknownTags reports whether err may mean that EC2 does not know the tags of a resource yet.
func (p *codeRetryer) unknownTags(err error) bool {
	if !p.fresh || !IsCode(err, "UnauthorizedOperation") {
		return false
	}
	denied := readDenied(err)
	return !denied.explicit && denied.Resource != "" && !strings.HasSuffix(denied.Resource, "*")
}

// MaxAttempts leaves the limit to IsErrorRetryable.
func (p *codeRetryer) MaxAttempts() int { return p.Retryer.MaxAttempts() + p.limit }

func (p *codeRetryer) IsErrorRetryable(err error) bool {
	if !p.own(err) {
		return p.Retryer.IsErrorRetryable(err)
	}
	p.seen++
	p.last = err
	if p.unknownTags(err) {
		p.doubt++
		return p.doubt < DoubtAttempts
	}
	return p.seen < p.limit
}

// RetryDelay counts the two kinds of attempts separately: a call that is throttled once while EC2
// becomes consistent must not wait as if throttled every time.
func (p *codeRetryer) RetryDelay(attempt int, err error) (time.Duration, error) {
	if !p.own(err) {
		return p.Retryer.RetryDelay(attempt-p.seen, err)
	}
	return backoff(p.seen - 1), nil
}

// GetAttemptToken lets the wrapped retryer pace every attempt, in adaptive mode.
func (p *codeRetryer) GetAttemptToken(ctx context.Context) (func(error) error, error) {
	if paced, ok := p.Retryer.(sdk.RetryerV2); ok {
		return paced.GetAttemptToken(ctx)
	}
	return p.GetInitialToken(), nil
}

func (p *codeRetryer) GetRetryToken(ctx context.Context, err error) (func(error) error, error) {
	if p.own(err) {
		return func(error) error { return nil }, nil
	}
	return p.Retryer.GetRetryToken(ctx, err)
}

// RetryELB adds error codes to those that the SDK retries, for one call.
func (c *Client) RetryELB(attempts int, codes ...string) func(*elb.Options) {
	return func(o *elb.Options) {
		o.Retryer = &codeRetryer{Retryer: c.retryers.elb, codes: codes, limit: attempts}
	}
}

// RetryELBUntilKnown makes a call retry for a few seconds while Elastic Load Balancing does not know yet what
// was just made.
func (c *Client) RetryELBUntilKnown() func(*elb.Options) {
	return c.RetryELB(DoubtAttempts, "LoadBalancerNotFound", "TargetGroupNotFound", "ListenerNotFound")
}

// RetrySSM adds error codes to those that the SDK retries, for one call.
func (c *Client) RetrySSM(attempts int, codes ...string) func(*ssm.Options) {
	return func(o *ssm.Options) {
		o.Retryer = &codeRetryer{Retryer: c.retryers.ssm, codes: codes, limit: attempts}
	}
}
