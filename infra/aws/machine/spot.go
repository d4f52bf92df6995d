package machine

import (
	"strconv"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// Spot says that a machine is a Spot instance, of a one-time request.
type Spot struct {
	MaxPrice string // US dollars an hour; empty means the On-Demand price
}

// The arguments with which a machine is a Spot instance.
const (
	fieldSpot     = "spot"
	fieldMaxPrice = "spot.max_price"
)

// CheckSpot reports a machine that is unfit for being a Spot instance, and a price that is none. An empty role stands for one that is
// not known.
func CheckSpot(role aws.MachineRole, maxPrice string) (errs invalid.Fields) {
	if role != "" && role != aws.RoleWorker {
		errs.Say(fieldSpot, "Not a Spot instance",
			"The machine has the role %s, and EC2 ends Spot instances with a notice of two minutes, several at once if it needs their capacity: data of etcd, the API or the load balancer would be lost. Remove spot, which is for workers.", role)
	}
	if maxPrice == "" {
		return errs
	}
	if p, err := strconv.ParseFloat(maxPrice, 64); err != nil || !(p > 0) || p > 1e6 {
		errs.Say(fieldMaxPrice, "Unusable price", "%q is no price: write US dollars an hour, such as \"0.05\".", maxPrice)
	}
	return errs
}

func marketSpec(s *Spot) *types.InstanceMarketOptionsRequest {
	if s == nil {
		return nil
	}
	return &types.InstanceMarketOptionsRequest{MarketType: types.MarketTypeSpot, SpotOptions: &types.SpotMarketOptions{
		SpotInstanceType: types.SpotInstanceTypeOneTime, InstanceInterruptionBehavior: types.InstanceInterruptionBehaviorTerminate, MaxPrice: aws.NonZero(s.MaxPrice),
	}}
}

// isSpot reports whether an instance is a Spot instance.
func isSpot(i types.Instance) bool { return i.InstanceLifecycle == types.InstanceLifecycleTypeSpot }

// aboutSpot adds the name of the argument to an error that only the price of a Spot instance can have
// caused.
func aboutSpot(err error) error {
	if !aws.IsCode(err, "SpotMaxPriceTooLow") {
		return err
	}
	return &invalid.Field{Field: fieldMaxPrice, Problem: "Price too low", Err: err}
}
