package ec2

import "github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"

var instanceExtraActions = map[string]action{
	"MonitorInstances":   writes(monitorInstances),
	"UnmonitorInstances": writes(unmonitorInstances),
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
