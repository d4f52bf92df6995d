package ssm

import (
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/bucket"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// The standard throughput of Parameter Store in one region of an account. AWS gives a rate and no burst, and no rate for
// other actions.
// https://docs.aws.amazon.com/general/latest/gr/ssm.html#limits_ssm
var (
	reading = bucket.Size{Capacity: 40, Refill: 40}
	writing = bucket.Size{Capacity: 3, Refill: 3}
)

// Admit takes the token for one call. It returns the throttling error if there is none.
func (s *Store) Admit(action string) error {
	name, size := "read", reading
	switch action {
	case "GetParameter", "GetParameters", "GetParametersByPath":
	case "PutParameter":
		name, size = "write", writing
	default:
		return nil
	}
	if s.cfg.Unthrottled || s.buckets.Take(name, size, 1, s.cfg.Now()) {
		return nil
	}
	return wire.SSM.Throttled
}
