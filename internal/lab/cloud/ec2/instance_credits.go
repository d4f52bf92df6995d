package ec2

import (
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

var creditActions = map[string]action{
	"DescribeInstanceCreditSpecifications": reads(describeCreditSpecifications),
	"ModifyInstanceCreditSpecification":    writes(modifyCreditSpecification),
}

const (
	creditsStandard  = "standard"
	creditsUnlimited = "unlimited"
)

// checkCredits refuses unknown credit options, and any for an instance type that earns no credits.
func checkCredits(option, instanceType string) error {
	switch {
	case option == "":
		return nil
	case !slices.Contains([]string{creditsStandard, creditsUnlimited}, option):
		return invalidValue("Value (%s) for parameter cpuCredits is invalid. Expected one of: standard, unlimited", option)
	case !burstable(instanceType):
		return wire.Refuse("InstanceCreditSpecification.NotSupported", "The %s instance type does not support T2 Unlimited.", instanceType)
	}
	return nil
}

type creditItem struct {
	InstanceID string `xml:"instanceId"`
	CPUCredits string `xml:"cpuCredits"`
}

type creditsResponse struct {
	Instances []creditItem `xml:"instanceCreditSpecificationSet>item"`
	NextToken string       `xml:"nextToken,omitempty"`
}

var creditFields = fields[instance]{"instance-id": func(_ *tx, i *instance) []string { return one(i.ID) }}

// credits returns an instance's credit option: the default of t2 is standard, that of the others unlimited.
func (i *instance) credits() string {
	switch {
	case i.CPUCredits == "" && strings.HasPrefix(i.Type, "t2."):
		return creditsStandard
	case i.CPUCredits == "":
		return creditsUnlimited
	}
	return i.CPUCredits
}

// describeCreditSpecifications returns the burstable instances that are asked for. Without ids, EC2
// leaves out those with the option standard.
func describeCreditSpecifications(t *tx, in *describeInstancesRequest) (any, error) {
	from := map[string]*instance{}
	for id, i := range t.visible() {
		if burstable(i.Type) && (len(in.InstanceIds) > 0 || i.credits() == creditsUnlimited) && !i.gone() {
			from[id] = i
		}
	}
	for _, id := range in.InstanceIds {
		if i := t.st.Instances[id]; i != nil && !burstable(i.Type) {
			return nil, wire.Refuse("InstanceCreditSpecification.NotSupported", "The instance '%s' is not a burstable performance instance.", id)
		}
	}
	items, next, err := describe(t, selection[instance]{kindInstance, from, "instanceId", in.InstanceIds, creditFields, in.describeRequest, 5},
		func(i *instance) creditItem { return creditItem{i.ID, i.credits()} })
	return creditsResponse{items, next}, err
}

type modifyCreditsRequest struct {
	request
	ClientToken string
	Instances   []struct{ InstanceId, CpuCredits string } `query:"InstanceCreditSpecification"`
}

type creditRefusal struct {
	InstanceID string `xml:"instanceId"`
	Code       string `xml:"error>code"`
	Message    string `xml:"error>message"`
}

type modifyCreditsResponse struct {
	Changed []creditDone    `xml:"successfulInstanceCreditSpecificationSet>item"`
	Refused []creditRefusal `xml:"unsuccessfulInstanceCreditSpecificationSet>item"`
}

type creditDone struct {
	InstanceID string `xml:"instanceId"`
}

// modifyCreditSpecification changes the credit options of running and stopped instances. EC2 says in a
// successful answer which it did not change, and why.
func modifyCreditSpecification(t *tx, in *modifyCreditsRequest) (any, error) {
	if len(in.Instances) == 0 {
		return nil, missing("InstanceCreditSpecification")
	}
	var out modifyCreditsResponse
	for _, c := range in.Instances {
		if c.CpuCredits == "" {
			return nil, missing("CpuCredits")
		}
		i, err := find(t, kindInstance, t.st.Instances, "instanceId", c.InstanceId)
		if err == nil && i.State != stateRunning && i.State != stateStopped {
			err = wire.Refuse("IncorrectInstanceState", "The instance '%s' is not in a state from which its credit option can be changed.", i.ID)
		}
		if err == nil {
			if err = checkCredits(c.CpuCredits, i.Type); err != nil && burstable(i.Type) { // no such option
				return nil, err
			}
		}
		if err != nil {
			e := wire.AsError(err)
			out.Refused = append(out.Refused, creditRefusal{c.InstanceId, e.Code, e.Message})
			continue
		}
		i.CPUCredits = c.CpuCredits
		out.Changed = append(out.Changed, creditDone{i.ID})
	}
	return out, nil
}
