package ec2

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// spotRequest is the one-time Spot request of a Spot instance.
type spotRequest struct {
	ID          string
	MaxPrice    string    // US dollars an hour; empty means the On-Demand price
	Recommended time.Time // when EC2 recommended to replace it; zero before
	Ends        time.Time // when EC2 terminates it, known from the notice of the interruption; zero before
}

// InterruptionNotice is how long before the end of a Spot instance its notice comes.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html
const InterruptionNotice = 2 * time.Minute

const (
	marketSpot     = "spot"
	spotOneTime    = "one-time"
	spotPersistent = "persistent"
	actTerminate   = "terminate"
)

var reasonSpotTermination = stateReason{"Server.SpotInstanceTermination", "Server.SpotInstanceTermination: Spot instance termination"}

type marketRequest struct {
	MarketType  string
	SpotOptions struct {
		MaxPrice                     string
		SpotInstanceType             string
		InstanceInterruptionBehavior string
		ValidUntil                   string
		BlockDurationMinutes         int
	}
}

// spotPrice is what a Spot instance of a type costs here, in US dollars an hour: it never changes.
func spotPrice(instanceType string) float64 {
	return 0.0035 * float64(instanceTypes[instanceType].vcpus)
}

// checkMarket refuses market options as EC2 does, and reports whether the request is for Spot instances.
func (in *runInstancesRequest) checkMarket() (spot bool, err error) {
	m := in.InstanceMarketOptions
	if m == nil {
		return false, nil
	}
	o := m.SpotOptions
	kind, interruption := cmp.Or(o.SpotInstanceType, spotOneTime), cmp.Or(o.InstanceInterruptionBehavior, actTerminate)
	switch {
	case m.MarketType == "":
		return false, missing("InstanceMarketOptions.MarketType")
	case m.MarketType != marketSpot:
		return false, invalidValue("Value (%s) for parameter marketType is invalid. The local EC2 has Spot instances only.", m.MarketType)
	case kind != spotOneTime && kind != spotPersistent:
		return false, invalidValue("Value (%s) for parameter spotInstanceType is invalid. Expected one of: one-time, persistent", kind)
	case interruption != actTerminate && interruption != "stop" && interruption != "hibernate":
		return false, invalidValue("Value (%s) for parameter instanceInterruptionBehavior is invalid. Expected one of: hibernate, stop, terminate", interruption)
	case kind == spotOneTime && interruption != actTerminate:
		return false, wire.Refuse("InvalidParameterCombination", "The request with type 'one-time' is not supported when instanceInterruptionBehavior is set to '%s'.", interruption)
	case kind == spotPersistent && interruption == actTerminate:
		return false, wire.Refuse("InvalidParameterCombination", "The terminate InstanceInterruptionBehavior is not supported when requestType is set to persistent.")
	case kind == spotOneTime && o.ValidUntil != "":
		return false, wire.Refuse("InvalidParameterCombination", "The parameter validUntil cannot be specified when the SpotRequestType is set to 'one-time'.")
	case kind == spotPersistent:
		return false, wire.Refuse("UnsupportedOperation", "The local EC2 has no persistent Spot requests.")
	case o.BlockDurationMinutes != 0:
		return false, wire.Refuse("InvalidParameterCombination", "Spot instances with a defined duration are no longer available.")
	case in.DisableApiTermination:
		return false, spotUnsupported("disableApiTermination")
	case in.DisableApiStop:
		return false, spotUnsupported("disableApiStop")
	}
	if o.MaxPrice == "" {
		return true, nil
	}
	price, err := strconv.ParseFloat(o.MaxPrice, 64)
	if err != nil || price <= 0 {
		return false, invalidValue("Value (%s) for parameter maxPrice is invalid.", o.MaxPrice)
	}
	if least := spotPrice(in.InstanceType); price < least {
		return false, wire.Refuse("SpotMaxPriceTooLow", "Your Spot request price of %s is lower than the minimum required Spot request fulfillment price of %.4f.", o.MaxPrice, least)
	}
	return true, nil
}

func spotUnsupported(attribute string) error {
	return wire.Refuse("UnsupportedOperation", "Modifying '%s' is not supported for spot instances.", attribute)
}

// newSpotRequest makes the Spot request of an instance. The first one of the account makes EC2's service-linked role.
func (t *tx) newSpotRequest(m *marketRequest) *spotRequest {
	t.st.SpotRole = true
	return &spotRequest{ID: fmt.Sprintf("sir-%08x", uint32(t.c.random())), MaxPrice: m.SpotOptions.MaxPrice} //nolint:gosec // a part of it is enough
}

// SpotRole reports whether the account has the service-linked role for Spot instances.
func (c *Compute) SpotRole() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.st.SpotRole
}

// Recommend recommends to replace a Spot instance. EC2 does so at its notice of an interruption at the latest.
func (c *Compute) Recommend(id string) error {
	return c.update("", nil, func(t *tx) error {
		i, err := t.runningSpot(id)
		if err != nil {
			return err
		}
		i.Spot.Recommended = t.now
		return nil
	})
}

// Interrupt gives a Spot instance its notice of an interruption, and terminates it after a while, InterruptionNotice if it is zero.
func (c *Compute) Interrupt(id string, after time.Duration) error {
	return c.update("", nil, func(t *tx) error {
		i, err := t.runningSpot(id)
		switch {
		case err != nil:
			return err
		case !i.Spot.Ends.IsZero():
			return fmt.Errorf("instance %s has its notice already", id)
		case i.Spot.Recommended.IsZero():
			i.Spot.Recommended = t.now
		}
		i.Spot.Ends = t.now.Add(cmp.Or(after, InterruptionNotice))
		t.endSpot(i)
		return nil
	})
}

func (t *tx) runningSpot(id string) (*instance, error) {
	i := t.st.Instances[id]
	switch {
	case i == nil || !i.up():
		return nil, fmt.Errorf("instance %s is not running", id)
	case i.Spot == nil:
		return nil, fmt.Errorf("instance %s is no Spot instance", id)
	}
	return i, nil
}

// endSpot terminates a Spot instance that has its notice, when its time has come.
func (t *tx) endSpot(i *instance) {
	t.later(i.ID, i.Spot.Ends, func(t *tx, i *instance) {
		if i.up() {
			i.set(stateShuttingDown, reasonSpotTermination, reasonSpotTermination.Code)
			t.afterCommit(func() { t.c.terminate(i.ID) })
		}
	})
}
