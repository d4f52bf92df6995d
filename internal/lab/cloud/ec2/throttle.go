package ec2

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// bucketSize is what a token bucket holds at most and when it is new, and how many tokens it gets a
// second.
type bucketSize struct{ capacity, refill float64 }

// The buckets of an account in one region, each for one action. Numbers and classes are those of
// "Request throttling for the Amazon EC2 API", as of 2025:
// https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html
var (
	nonMutating       = bucketSize{100, 20}
	unfiltered        = bucketSize{50, 10}
	mutating          = bucketSize{50, 5}
	resourceIntensive = bucketSize{50, 5}

	// unfilteredActions have a second, smaller bucket for calls without a filter and without pages. Ids
	// are no filter.
	unfilteredActions = []string{
		"DescribeInstances", "DescribeInstanceStatus", "DescribeNetworkInterfaces", "DescribeSecurityGroups", "DescribeSnapshots",
		"DescribeSpotInstanceRequests", "DescribeVolumes",
	}
	resourceIntensiveActions = []string{"AuthorizeSecurityGroupIngress", "CreateKeyPair", "RevokeSecurityGroupIngress"}

	// uncategorized are the actions with numbers of their own, of those that are served here.
	uncategorized = map[string]bucketSize{
		"AssociateIamInstanceProfile":     {100, 5},
		"CreateTags":                      {100, 10},
		"CreateVolume":                    {100, 5},
		"DeleteNetworkInterface":          {100, 5},
		"DeleteTags":                      {100, 10},
		"DeleteVolume":                    {100, 5},
		"DescribeSecurityGroupReferences": {20, 5},
		"DescribeStaleSecurityGroups":     {20, 5},
		"DisassociateIamInstanceProfile":  {100, 5},
		"ModifyInstanceMetadataOptions":   {100, 5},
		"ModifyNetworkInterfaceAttribute": {100, 5},
		"RunInstances":                    {5, 2},
		"StartInstances":                  {5, 2},
		"TerminateInstances":              {100, 5},
	}

	// resourceBuckets are emptied by the number of instances that a call is about, beside the bucket of
	// its calls.
	resourceBuckets = map[string]bucketSize{
		"RunInstances":       {1000, 2},
		"StartInstances":     {1000, 2},
		"StopInstances":      {1000, 20},
		"TerminateInstances": {1000, 20},
	}
)

// throttle counts the calls of an account. Buckets are refilled continuously. The zero value throttles
// as AWS does.
type throttle struct {
	mu      sync.Mutex
	buckets map[string]*bucket
}

type bucket struct {
	tokens float64
	at     time.Time // of the tokens
}

// Admit takes the tokens for one call. It returns EC2's throttling error if a bucket lacks them; then
// no resource is changed, and no token of the bucket that lacks them is taken.
func (c *Compute) Admit(action string, form url.Values) error {
	if c.cfg.Quotas.Unthrottled {
		return nil
	}
	if _, known := actions[action]; !known {
		return nil
	}
	now := c.cfg.Clock.Now()
	name, size := requestBucket(action, form)
	if !c.throttle.take(name, size, 1, now) {
		return wire.EC2.Throttled
	}
	if size, ok := resourceBuckets[action]; ok && !c.throttle.take("instances of "+action, size, resources(action, form), now) {
		return wire.EC2.Throttled
	}
	return nil
}

// requestBucket returns the name and the size of the bucket for a call.
func requestBucket(action string, form url.Values) (string, bucketSize) {
	if size, ok := uncategorized[action]; ok {
		return action, size
	}
	switch {
	case slices.Contains(resourceIntensiveActions, action):
		return action, resourceIntensive
	case slices.Contains(unfilteredActions, action) && isUnfiltered(form):
		return "unfiltered " + action, unfiltered
	case slices.ContainsFunc([]string{"Describe", "List", "Search", "Get"}, func(verb string) bool { return strings.HasPrefix(action, verb) }):
		return action, nonMutating
	}
	return action, mutating
}

// isUnfiltered reports whether a call asks neither for a page nor with a filter.
func isUnfiltered(form url.Values) bool {
	for parameter := range form {
		if parameter == "MaxResults" || parameter == "NextToken" || strings.HasPrefix(parameter, "Filter.") {
			return false
		}
	}
	return true
}

// resources returns the number of instances that a call is about.
func resources(action string, form url.Values) float64 {
	if action == "RunInstances" {
		n, _ := strconv.Atoi(form.Get("MaxCount")) // the action refuses what is no number
		return float64(max(1, n))
	}
	n := 0
	for parameter := range form {
		if strings.HasPrefix(parameter, "InstanceId.") {
			n++
		}
	}
	return float64(max(1, n))
}

// take takes n tokens from a bucket, or none if it has fewer.
func (t *throttle) take(name string, size bucketSize, n float64, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.buckets == nil {
		t.buckets = map[string]*bucket{}
	}
	b := t.buckets[name]
	if b == nil {
		b = &bucket{size.capacity, now}
		t.buckets[name] = b
	}
	if passed := now.Sub(b.at).Seconds(); passed > 0 {
		b.tokens, b.at = min(size.capacity, b.tokens+passed*size.refill), now
	}
	if b.tokens < n {
		return false
	}
	b.tokens -= n
	return true
}
