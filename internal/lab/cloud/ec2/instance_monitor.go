package ec2

import "github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"

var instanceExtraActions = map[string]action{
	"MonitorInstances":                     writes(monitorInstances),
	"UnmonitorInstances":                   writes(unmonitorInstances),
	"DescribeInstanceCreditSpecifications": reads(describeCreditSpecifications),
}

type monitoringRequest struct {
	request
	InstanceIds []string `query:"InstanceId"`
}

type monitoringItem struct {
	InstanceID string `xml:"instanceId"`
	State      string `xml:"monitoring>state"`
}

type monitoringResponse struct {
	Instances []monitoringItem `xml:"instancesSet>item"`
}

func monitorInstances(t *tx, in *monitoringRequest) (any, error) {
	return monitor(t, in, true, "pending")
}

func unmonitorInstances(t *tx, in *monitoringRequest) (any, error) {
	return monitor(t, in, false, "disabling")
}

// monitor switches detailed monitoring, of which there is nothing to see here. answer is the state
// in EC2's answer.
func monitor(t *tx, in *monitoringRequest, on bool, answer string) (any, error) {
	if len(in.InstanceIds) == 0 {
		return nil, missing("InstanceId")
	}
	var out monitoringResponse
	for _, id := range in.InstanceIds {
		i, err := find(t, kindInstance, t.st.Instances, "instanceId", id)
		if err != nil {
			return nil, err
		}
		if i.gone() {
			return nil, wire.Refuse("IncorrectInstanceState", "The instance '%s' is not in a state from which it can be monitored.", i.ID)
		}
		i.Monitoring = on
		out.Instances = append(out.Instances, monitoringItem{id, answer})
	}
	return out, nil
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

// credits returns an instance's credit option: all burstable types here are unlimited by default.
func (i *instance) credits() string {
	if i.CPUCredits == "" {
		return "unlimited"
	}
	return i.CPUCredits
}

// describeCreditSpecifications returns the burstable instances that are asked for. Without ids, EC2
// leaves out those with the option standard.
func describeCreditSpecifications(t *tx, in *describeInstancesRequest) (any, error) {
	from := map[string]*instance{}
	for id, i := range t.visible() {
		if burstable(i.Type) && (len(in.InstanceIds) > 0 || i.credits() == "unlimited") && !i.gone() {
			from[id] = i
		}
	}
	for _, id := range in.InstanceIds {
		if i := t.st.Instances[id]; i != nil && !burstable(i.Type) {
			return nil, wire.Refuse("UnsupportedOperation", "The instance '%s' is not a burstable performance instance.", id)
		}
	}
	items, next, err := describe(t, selection[instance]{kindInstance, from, "instanceId", in.InstanceIds, creditFields, in.describeRequest, 5},
		func(i *instance) creditItem { return creditItem{i.ID, i.credits()} })
	return creditsResponse{items, next}, err
}
