package machine

import (
	"context"
	"fmt"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// Event is what EC2 has scheduled for an instance.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-instances-status-check_sched.html
type Event struct {
	Code        string // such as system-reboot
	Description string
	NotBefore   time.Time
}

// What EC2 does at a scheduled event: Event.Effect.
const (
	Reboots  = "reboot"
	Stops    = "stop"
	Disturbs = "disturb" // its network or its power, for a moment
)

// Effect returns what EC2 does to the instance.
func (e Event) Effect() string {
	switch types.EventCode(e.Code) {
	case types.EventCodeInstanceReboot, types.EventCodeSystemReboot:
		return Reboots
	case types.EventCodeInstanceStop, types.EventCodeInstanceRetirement:
		return Stops
	}
	return Disturbs
}

// Scheduled returns the events that EC2 has scheduled for an instance, with a call that the machines of all clusters share.
func Scheduled(ctx context.Context, c *aws.Client, id string) ([]Event, error) {
	all, err := memoryOf(c).events.Get(ctx, "", id, c.Changes(), func(ctx context.Context) (map[string][]Event, error) { return describeEvents(ctx, c) })
	if err != nil {
		return nil, fmt.Errorf("describe the scheduled events of %s: %w", id, err)
	}
	return all[id], nil
}

// describeEvents returns the events of the region's instances that are still to come.
func describeEvents(ctx context.Context, c *aws.Client) (map[string][]Event, error) {
	var codes []string
	for _, code := range types.EventCode("").Values() {
		codes = append(codes, string(code))
	}
	found, err := aws.All(ctx, ec2.NewDescribeInstanceStatusPaginator(c.EC2, &ec2.DescribeInstanceStatusInput{Filters: []types.Filter{aws.Filter("event.code", codes...)}}),
		func(p *ec2.DescribeInstanceStatusOutput) []types.InstanceStatus { return p.InstanceStatuses })
	out := map[string][]Event{}
	for _, s := range found {
		for _, e := range s.Events {
			if text := sdk.ToString(e.Description); !strings.HasPrefix(text, "[") { // "[Completed] ..." or "[Canceled] ..."
				id := sdk.ToString(s.InstanceId)
				out[id] = append(out[id], Event{string(e.Code), text, sdk.ToTime(e.NotBefore)})
			}
		}
	}
	return out, err
}
