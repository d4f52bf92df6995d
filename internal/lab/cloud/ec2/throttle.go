package ec2

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/bucket"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// The buckets of an account in one region, each for one action. Numbers and classes are those of
// "Request throttling for the Amazon EC2 API", as of 2025:
// https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html
var (
	nonMutating       = bucket.Size{Capacity: 100, Refill: 20}
	unfiltered        = bucket.Size{Capacity: 50, Refill: 10}
	mutating          = bucket.Size{Capacity: 50, Refill: 5}
	resourceIntensive = bucket.Size{Capacity: 50, Refill: 5}

	// unfilteredActions have a second, smaller bucket for calls without a filter and without pages. Ids
	// are no filter.
	unfilteredActions = []string{
		"DescribeInstances", "DescribeInstanceStatus", "DescribeNetworkInterfaces", "DescribeSecurityGroups", "DescribeSnapshots",
		"DescribeSpotInstanceRequests", "DescribeVolumes",
	}
	resourceIntensiveActions = []string{"AuthorizeSecurityGroupIngress", "CreateKeyPair", "RevokeSecurityGroupIngress"}

	// uncategorized are the actions with numbers of their own, of those that are served here.
	uncategorized = map[string]bucket.Size{
		"AssociateIamInstanceProfile":     {Capacity: 100, Refill: 5},
		"CreateTags":                      {Capacity: 100, Refill: 10},
		"CreateVolume":                    {Capacity: 100, Refill: 5},
		"DeleteNetworkInterface":          {Capacity: 100, Refill: 5},
		"DeleteTags":                      {Capacity: 100, Refill: 10},
		"DeleteVolume":                    {Capacity: 100, Refill: 5},
		"DisassociateIamInstanceProfile":  {Capacity: 100, Refill: 5},
		"ModifyInstanceMetadataOptions":   {Capacity: 100, Refill: 5},
		"ModifyNetworkInterfaceAttribute": {Capacity: 100, Refill: 5},
		"RunInstances":                    {Capacity: 5, Refill: 2},
		"StartInstances":                  {Capacity: 5, Refill: 2},
		"TerminateInstances":              {Capacity: 100, Refill: 5},
	}

	// resourceBuckets are emptied by the number of instances that a call is about, beside the bucket of
	// its calls.
	resourceBuckets = map[string]bucket.Size{
		"RunInstances":       {Capacity: 1000, Refill: 2},
		"StartInstances":     {Capacity: 1000, Refill: 2},
		"StopInstances":      {Capacity: 1000, Refill: 20},
		"TerminateInstances": {Capacity: 1000, Refill: 20},
	}
)

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
	if !c.buckets.Take(name, size, 1, now) {
		return wire.EC2.Throttled
	}
	if size, ok := resourceBuckets[action]; ok && !c.buckets.Take("instances of "+action, size, resources(action, form), now) {
		return wire.EC2.Throttled
	}
	return nil
}

// requestBucket returns the name and the size of the bucket for a call.
func requestBucket(action string, form url.Values) (string, bucket.Size) {
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
