package ec2

import (
	"encoding/base64"
	"slices"
	"strconv"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/metadata"
)

var instanceFields = fields[instance]{
	"instance-id":                         func(_ *tx, i *instance) []string { return one(i.ID) },
	"instance-state-name":                 func(_ *tx, i *instance) []string { return one(i.State.String()) },
	"instance-state-code":                 func(_ *tx, i *instance) []string { return one(strconv.Itoa(int(i.State))) },
	"instance-type":                       func(_ *tx, i *instance) []string { return one(i.Type) },
	"image-id":                            func(_ *tx, i *instance) []string { return one(i.Image) },
	"key-name":                            func(_ *tx, i *instance) []string { return one(i.KeyName) },
	"client-token":                        func(_ *tx, i *instance) []string { return one(i.ClientToken) },
	"reservation-id":                      func(_ *tx, i *instance) []string { return one(i.Reservation) },
	"availability-zone":                   func(_ *tx, i *instance) []string { return one(i.Zone) },
	"architecture":                        func(_ *tx, i *instance) []string { return one(instanceTypes[i.Type].architecture()) },
	"root-device-name":                    func(*tx, *instance) []string { return one(rootDevice) },
	"root-device-type":                    func(*tx, *instance) []string { return one("ebs") },
	"virtualization-type":                 func(*tx, *instance) []string { return one("hvm") },
	"placement-group-name":                func(_ *tx, i *instance) []string { return one(i.Group) },
	"tenancy":                             func(*tx, *instance) []string { return one("default") },
	"state-reason-code":                   func(_ *tx, i *instance) []string { return one(i.Reason.Code) },
	"launch-time":                         func(_ *tx, i *instance) []string { return one(i.LaunchTime.Format("2006-01-02T15:04:05.000Z")) },
	"metadata-options.http-tokens":        func(_ *tx, i *instance) []string { return one(i.Metadata.Tokens) },
	"owner-id":                            func(t *tx, _ *instance) []string { return one(t.c.cfg.AccountID) },
	"vpc-id":                              ofItem(func(i instanceItem) string { return i.VPCID }),
	"subnet-id":                           ofItem(func(i instanceItem) string { return i.SubnetID }),
	"iam-instance-profile.arn":            ofProfile(func(p Profile) string { return p.ARN }),
	"iam-instance-profile.id":             ofProfile(func(p Profile) string { return p.ID }),
	"iam-instance-profile.name":           ofProfile(Profile.name),
	"private-ip-address":                  ofItem(func(i instanceItem) string { return i.PrivateIP }),
	"private-dns-name":                    ofItem(func(i instanceItem) string { return i.PrivateDNS }),
	"ip-address":                          ofItem(func(i instanceItem) string { return i.PublicIP }),
	"dns-name":                            ofItem(func(i instanceItem) string { return i.PublicDNS }),
	"instance-lifecycle":                  ofItem(func(i instanceItem) string { return i.Lifecycle }),
	"spot-instance-request-id":            ofItem(func(i instanceItem) string { return i.SpotRequest }),
	"instance.group-id":                   ofGroups(func(g groupRef) string { return g.ID }),
	"instance.group-name":                 ofGroups(func(g groupRef) string { return g.Name }),
	"group-id":                            ofGroups(func(g groupRef) string { return g.ID }),
	"group-name":                          ofGroups(func(g groupRef) string { return g.Name }),
	"network-interface.subnet-id":         ofItem(func(i instanceItem) string { return i.SubnetID }),
	"network-interface.vpc-id":            ofItem(func(i instanceItem) string { return i.VPCID }),
	"network-interface.group-id":          ofGroups(func(g groupRef) string { return g.ID }),
	"source-dest-check":                   ofItem(func(i instanceItem) string { return sourceDestCheck(i) }),
	"network-interface.source-dest-check": ofItem(func(i instanceItem) string { return sourceDestCheck(i) }),
	"network-interface.network-interface-id": ofItem(func(i instanceItem) string {
		if len(i.Interfaces) == 0 {
			return ""
		}
		return i.Interfaces[0].ID
	}),
	"network-interface.addresses.private-ip-address": ofItem(func(i instanceItem) string { return i.PrivateIP }),
	"block-device-mapping.volume-id": ofItem(func(i instanceItem) string {
		if len(i.BlockDevices) == 0 {
			return ""
		}
		return i.BlockDevices[0].EBS.VolumeID
	}),
}

func sourceDestCheck(i instanceItem) string {
	if i.SourceDestCheck == nil {
		return ""
	}
	return strconv.FormatBool(*i.SourceDestCheck)
}

func ofItem(f func(instanceItem) string) func(*tx, *instance) []string {
	return func(t *tx, i *instance) []string { return one(f(t.instanceItem(i))) }
}

func ofProfile(f func(Profile) string) func(*tx, *instance) []string {
	return func(t *tx, i *instance) []string {
		if a := t.profileOf(i.ID); a != nil {
			return one(f(a.Profile))
		}
		return nil
	}
}

func ofGroups(f func(groupRef) string) func(*tx, *instance) []string {
	return func(t *tx, i *instance) []string {
		var out []string
		for _, g := range t.instanceItem(i).Groups {
			out = append(out, f(g))
		}
		return out
	}
}

type describeInstancesRequest struct {
	describeRequest
	InstanceIds []string `query:"InstanceId"`
}

type describeInstancesResponse struct {
	Reservations []reservationItem `xml:"reservationSet>item"`
	NextToken    string            `xml:"nextToken,omitempty"`
}

func (t *tx) selectInstances(in *describeInstancesRequest) ([]*instance, string, error) {
	return selection[instance]{kindInstance, t.visible(), "instanceId", in.InstanceIds, instanceFields, in.describeRequest, 5}.run(t)
}

// visible returns the instances, without those terminated longer ago than TerminatedVisible.
func (t *tx) visible() map[string]*instance {
	shown := t.c.faults.TerminatedVisible(TerminatedVisible)
	out := make(map[string]*instance, len(t.st.Instances))
	for id, i := range t.st.Instances {
		if i.State != stateTerminated || t.now.Sub(i.TerminatedAt) <= shown {
			out[id] = i
		}
	}
	return out
}

func describeInstances(t *tx, in *describeInstancesRequest) (any, error) {
	page, next, err := t.selectInstances(in)
	if err != nil {
		return nil, err
	}
	out := describeInstancesResponse{NextToken: next}
	for _, i := range page {
		n := slices.IndexFunc(out.Reservations, func(r reservationItem) bool { return r.ID == i.Reservation })
		if n < 0 {
			n = len(out.Reservations)
			out.Reservations = append(out.Reservations, reservationItem{ID: i.Reservation, OwnerID: t.c.cfg.AccountID})
		}
		out.Reservations[n].Instances = append(out.Reservations[n].Instances, t.instanceItem(i))
	}
	return out, nil
}

type describeStatusRequest struct {
	describeInstancesRequest
	IncludeAllInstances bool
}

// statusFields are the filters of DescribeInstanceStatus, which are not those of DescribeInstances.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstanceStatus.html
var statusFields = fields[instance]{
	"availability-zone":       instanceFields["availability-zone"],
	"instance-state-name":     instanceFields["instance-state-name"],
	"instance-state-code":     instanceFields["instance-state-code"],
	"event.code":              ofEvents(func(e metadata.Event) string { return e.Code }),
	"event.description":       ofEvents(func(e metadata.Event) string { return e.Description }),
	"event.instance-event-id": ofEvents(func(e metadata.Event) string { return e.ID }),
}

type statusItem struct {
	InstanceID string        `xml:"instanceId"`
	Zone       string        `xml:"availabilityZone"`
	State      stateItem     `xml:"instanceState"`
	Instance   statusSummary `xml:"instanceStatus"`
	System     statusSummary `xml:"systemStatus"`
	Events     []eventItem   `xml:"eventsSet>item"`
}

type statusSummary struct {
	Status  string         `xml:"status"`
	Details []statusDetail `xml:"details>item"`
}

type statusDetail struct {
	Name   string `xml:"name"`
	Status string `xml:"status"`
}

type describeStatusResponse struct {
	Statuses  []statusItem `xml:"instanceStatusSet>item"`
	NextToken string       `xml:"nextToken,omitempty"`
}

// statusCheckPeriod is how long an instance runs before its first status checks have a result, and how
// long it is unreachable before they fail.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-system-instance-status-check.html
const statusCheckPeriod = time.Minute

func describeInstanceStatus(t *tx, in *describeStatusRequest) (any, error) {
	if !in.IncludeAllInstances {
		in.Filters = append(in.Filters, filter{"instance-state-name", []string{"running"}})
	}
	page, next, err := selection[instance]{kindInstance, t.visible(), "instanceId", in.InstanceIds, statusFields, in.describeRequest, 5}.run(t)
	if err != nil {
		return nil, err
	}
	out := describeStatusResponse{NextToken: next}
	for _, i := range page {
		s := statusSummary{Status: "not-applicable"}
		since, cut := t.c.faults.ZoneCut(i.Zone)
		switch {
		case i.State == stateRunning && (i.Impaired || cut && t.now.Sub(since) >= statusCheckPeriod):
			s = statusSummary{"impaired", []statusDetail{{"reachability", "failed"}}}
		case i.State == stateRunning && (!i.Answering || t.now.Sub(i.LaunchTime) < statusCheckPeriod):
			s = statusSummary{"initializing", []statusDetail{{"reachability", "initializing"}}}
		case i.State == stateRunning:
			s = statusSummary{"ok", []statusDetail{{"reachability", "passed"}}}
		}
		out.Statuses = append(out.Statuses, statusItem{i.ID, i.Zone, i.State.item(), s, s, t.eventItems(i)})
	}
	return out, nil
}

type instanceAttributeRequest struct {
	request
	InstanceId string
	Attribute  string
}

type instanceAttributeResponse struct {
	ID                 string           `xml:"instanceId"`
	Type               *stringAttribute `xml:"instanceType,omitempty"`
	UserData           *stringAttribute `xml:"userData,omitempty"`
	Shutdown           *stringAttribute `xml:"instanceInitiatedShutdownBehavior,omitempty"`
	RootDevice         *stringAttribute `xml:"rootDeviceName,omitempty"`
	DisableTermination *boolAttribute   `xml:"disableApiTermination,omitempty"`
	DisableStop        *boolAttribute   `xml:"disableApiStop,omitempty"`
	SourceDestCheck    *boolAttribute   `xml:"sourceDestCheck,omitempty"`
	EBSOptimized       *boolAttribute   `xml:"ebsOptimized,omitempty"`
	ENASupport         *boolAttribute   `xml:"enaSupport,omitempty"`
	Groups             []groupRef       `xml:"groupSet>item"`
	BlockDevices       []deviceItem     `xml:"blockDeviceMapping>item"`
}

func describeInstanceAttribute(t *tx, in *instanceAttributeRequest) (any, error) {
	i, err := find(t, kindInstance, t.st.Instances, "instanceId", in.InstanceId)
	if err != nil {
		return nil, err
	}
	i = asSeen(t, i.ID, i)
	item := t.instanceItem(i)
	out := instanceAttributeResponse{ID: i.ID}
	switch in.Attribute {
	case "instanceType":
		out.Type = &stringAttribute{i.Type}
	case "userData":
		out.UserData = &stringAttribute{i.UserData}
	case "instanceInitiatedShutdownBehavior":
		out.Shutdown = &stringAttribute{i.Shutdown}
	case "rootDeviceName":
		out.RootDevice = &stringAttribute{rootDevice}
	case "disableApiTermination":
		out.DisableTermination = &boolAttribute{i.DisableTermination}
	case "disableApiStop":
		out.DisableStop = &boolAttribute{i.DisableStop}
	case "sourceDestCheck":
		out.SourceDestCheck = &boolAttribute{item.SourceDestCheck != nil && *item.SourceDestCheck}
	case "ebsOptimized":
		out.EBSOptimized = &boolAttribute{i.EBSOptimized}
	case "enaSupport":
		out.ENASupport = &boolAttribute{true}
	case "groupSet":
		out.Groups = item.Groups
	case "blockDeviceMapping":
		out.BlockDevices = item.BlockDevices
	case "":
		return nil, missing("attribute")
	default:
		return nil, invalidValue("Value (%s) for parameter attribute is invalid. Unknown attribute.", in.Attribute)
	}
	return out, nil
}

type consoleRequest struct {
	request
	InstanceId string
	Latest     bool
}

type consoleResponse struct {
	ID        string    `xml:"instanceId"`
	Timestamp time.Time `xml:"timestamp"`
	Output    string    `xml:"output"`
}

// consoleLimit is how many bytes of a console's end EC2 returns.
const consoleLimit = 64 * 1024

func getConsoleOutput(t *tx, in *consoleRequest) (any, error) {
	i, err := find(t, kindInstance, t.st.Instances, "instanceId", in.InstanceId)
	if err != nil {
		return nil, err
	}
	if in.Latest && hypervisor(i.Type) != nitro {
		return nil, wire.Refuse("UnsupportedOperation", "This instance type does not support retrieving the latest console logs. You can only retrieve the latest console logs for Nitro instances.")
	}
	out, err := t.c.console(i.ID, consoleLimit)
	if err != nil {
		return nil, wire.AsError(err)
	}
	return consoleResponse{i.ID, t.now, base64.StdEncoding.EncodeToString(out)}, nil
}
