package ec2

import (
	"maps"
	"net/netip"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

var instanceActions = map[string]action{
	"RunInstances":                  writes(runInstances),
	"StartInstances":                writes(startInstances),
	"StopInstances":                 writes(stopInstances),
	"RebootInstances":               writes(rebootInstances),
	"TerminateInstances":            writes(terminateInstances),
	"DescribeInstances":             reads(describeInstances),
	"DescribeInstanceStatus":        reads(describeInstanceStatus),
	"DescribeInstanceAttribute":     reads(describeInstanceAttribute),
	"ModifyInstanceAttribute":       writes(modifyInstanceAttribute),
	"ModifyInstanceMetadataOptions": writes(modifyMetadataOptions),
	"GetConsoleOutput":              reads(getConsoleOutput),
	"MonitorInstances":              writes(monitorInstances),
	"UnmonitorInstances":            writes(unmonitorInstances),
}

type instanceIDsRequest struct {
	request
	InstanceIds    []string `query:"InstanceId"`
	Force          bool
	SkipOsShutdown bool
}

type stateChange struct {
	ID       string    `xml:"instanceId"`
	Current  stateItem `xml:"currentState"`
	Previous stateItem `xml:"previousState"`
}

type stateChangesResponse struct {
	Instances []stateChange `xml:"instancesSet>item"`
}

// changeStates runs change on each instance of the request and returns the transitions.
func changeStates(t *tx, in *instanceIDsRequest, change func(*instance) error) (any, error) {
	var out stateChangesResponse
	err := t.eachInstance(in.InstanceIds, func(i *instance) error {
		previous := i.State
		if err := change(i); err != nil {
			return err
		}
		out.Instances = append(out.Instances, stateChange{i.ID, i.State.item(), previous.item()})
		return nil
	})
	return out, err
}

// eachInstance calls do with each instance of a request, which must name one.
func (t *tx) eachInstance(ids []string, do func(*instance) error) error {
	if len(ids) == 0 {
		return missing("InstanceId")
	}
	for _, id := range ids {
		i, err := find(t, kindInstance, t.st.Instances, "instanceId", id)
		if err != nil {
			return err
		}
		if err := do(i); err != nil {
			return err
		}
	}
	return nil
}

func wrongState(i *instance, verb string) error {
	return wire.Refuse("IncorrectInstanceState", "The instance '%s' is not in a state from which it can be %s.", i.ID, verb)
}

func startInstances(t *tx, in *instanceIDsRequest) (any, error) {
	return changeStates(t, in, func(i *instance) error {
		switch i.State {
		case statePending, stateRunning:
			return nil
		case stateStopped:
			if err := t.checkOffered(i.Type, i.Zone); err != nil {
				return err
			}
			if _, err := t.launchable(i.Type, i.Spot != nil, 1, 1); err != nil {
				return err
			}
			if _, err := t.roomFor(i.Type, i.Zone, 1, 1); err != nil {
				return err
			}
			if _, err := t.placeable(i.Group, i.Type, i.Zone, 1, 1); err != nil {
				return err
			}
			if err := t.giveAutoPublicIP(t.st.Interfaces[i.Interface]); err != nil {
				return err
			}
			i.set(statePending, stateReason{}, "")
			i.LaunchTime = t.now
			i.powerOn()
			i.outlived(t.now, true)
			t.afterCommit(func() { t.c.launch(i.ID) })
			return nil
		}
		return wrongState(i, "started")
	})
}

func stopInstances(t *tx, in *instanceIDsRequest) (any, error) {
	return changeStates(t, in, func(i *instance) error {
		switch i.State {
		case stateStopping, stateStopped:
			return nil
		case stateRunning:
			if i.Spot != nil {
				return wire.Refuse("UnsupportedOperation", "You can't stop the Spot Instance '%s' because it is associated with a one-time Spot Instance request. You can only stop Spot Instances associated with persistent Spot Instance requests.", i.ID)
			}
			if i.DisableStop {
				return wire.Refuse("OperationNotPermitted", "The instance '%s' may not be stopped. Modify its 'disableApiStop' instance attribute and try again.", i.ID)
			}
			i.set(stateStopping, reasonUserShutdown, t.userInitiated())
			t.afterCommit(func() { t.c.stop(i.ID, in.Force || in.SkipOsShutdown) })
			return nil
		}
		return wrongState(i, "stopped")
	})
}

// rebootInstances answers before the machine reboots, as EC2 does.
func rebootInstances(t *tx, in *instanceIDsRequest) (any, error) {
	_, err := changeStates(t, in, func(i *instance) error {
		if i.State != stateRunning {
			return wrongState(i, "rebooted")
		}
		i.powerOn()
		i.outlived(t.now, false)
		t.afterCommit(func() { t.c.reboot(i.ID) })
		return nil
	})
	if err != nil {
		return nil, err
	}
	return done{true}, nil
}

func terminateInstances(t *tx, in *instanceIDsRequest) (any, error) {
	return changeStates(t, in, func(i *instance) error {
		if i.gone() {
			return nil
		}
		if i.DisableTermination {
			return wire.Refuse("OperationNotPermitted", "The instance '%s' may not be terminated. Modify its 'disableApiTermination' instance attribute and try again.", i.ID)
		}
		i.set(stateShuttingDown, reasonUserShutdown, t.userInitiated())
		t.afterCommit(func() { t.c.terminate(i.ID) })
		return nil
	})
}

// stopped completes a stop: an automatic public address is released, an Elastic IP stays. What the
// machine had mounted can be detached now.
func (t *tx) stopped(i *instance) {
	i.set(stateStopped, i.Reason, i.Transition)
	i.Powered = false
	t.st.Interfaces[i.Interface].PublicIP = netip.Addr{}
	for _, v := range t.attachedTo(i) {
		if v.attachment() == "detaching" {
			v.release()
		}
	}
}

// terminated completes a termination and releases what is deleted with the instance.
func (t *tx) terminated(i *instance) {
	i.set(stateTerminated, i.Reason, i.Transition)
	i.TerminatedAt = t.now
	i.UserData = ""
	if e := t.st.Interfaces[i.Interface]; e != nil {
		if a := t.addressOf(e.ID); a != nil {
			a.Interface, a.AssociationID = "", ""
		}
		e.Instance, e.AttachmentID, e.PublicIP = "", "", netip.Addr{}
		if e.DeleteOnTermination {
			t.st.Held[e.Subnet+"/"+e.PrivateIP.String()] = t.now
			t.drop(e.ID)
			delete(t.st.Interfaces, e.ID)
		}
	}
	maps.DeleteFunc(t.st.Profiles, func(_ string, a *profileAssociation) bool { return a.Instance == i.ID })
	for _, v := range t.attachedTo(i) {
		v.release()
		if v.DeleteOnTermination {
			t.deleteVolume(v)
		}
	}
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
	var out monitoringResponse
	err := t.eachInstance(in.InstanceIds, func(i *instance) error {
		if i.gone() {
			return wire.Refuse("IncorrectInstanceState", "The instance '%s' is not in a state from which it can be monitored.", i.ID)
		}
		i.Monitoring = on
		out.Instances = append(out.Instances, monitoringItem{i.ID, answer})
		return nil
	})
	return out, err
}
