package ec2

import (
	"net/netip"
	"time"
)

// instanceState is EC2's pair of code and name.
type instanceState int

const (
	statePending      instanceState = 0
	stateRunning      instanceState = 16
	stateShuttingDown instanceState = 32
	stateTerminated   instanceState = 48
	stateStopping     instanceState = 64
	stateStopped      instanceState = 80
)

var stateNames = map[instanceState]string{
	statePending: "pending", stateRunning: "running", stateShuttingDown: "shutting-down",
	stateTerminated: "terminated", stateStopping: "stopping", stateStopped: "stopped",
}

// String is the state's name, as EC2 spells it.
func (s instanceState) String() string { return stateNames[s] }

// TerminatedVisible is how long Describe calls still show a terminated instance. EC2 says "a short
// while, usually less than one hour".
const TerminatedVisible = time.Hour

type instance struct {
	ID                 string
	Reservation        string
	LaunchIndex        int
	ClientToken        string
	Image              string
	Type               string
	KeyName            string
	PublicKey          string // of the key pair, which may be deleted later
	UserData           string // base64
	State              instanceState
	Reason             stateReason
	Transition         string // reason of the last transition by a user, for people
	Powered            bool   // the machine is on, or about to be
	Booted             bool   // it has run before
	Answering          bool   // the machine has got its address since it was powered on
	Impaired           bool   // the machine is dead although the state is running
	LaunchTime         time.Time
	TerminatedAt       time.Time
	VPC                string
	Subnet             string
	Zone               string
	Group              string // name of its placement group
	Interface          string
	RootVolume         string
	PrivateIP          netip.Addr
	Shutdown           string // stop or terminate: the effect of a shutdown from inside
	DisableTermination bool
	DisableStop        bool
	EBSOptimized       bool
	Monitoring         bool
	CPUCredits         string
	Metadata           metadataOptions
	Spot               *spotRequest // nil if it is On-Demand
	Events             []scheduledEvent
}

type stateReason struct {
	Code    string `xml:"code"`
	Message string `xml:"message"`
}

var (
	reasonUserShutdown     = stateReason{"Client.UserInitiatedShutdown", "Client.UserInitiatedShutdown: User initiated shutdown"}
	reasonInstanceShutdown = stateReason{"Client.InstanceInitiatedShutdown", "Client.InstanceInitiatedShutdown: Instance initiated shutdown"}
	reasonPowerCut         = stateReason{"Server.ScheduledStop", "Server.ScheduledStop: Stopped because the underlying hardware failed"}
)

// metadataOptions are those of the instance metadata service.
type metadataOptions struct {
	Tokens   string // optional or required
	HopLimit int
	Endpoint string // enabled or disabled
	Tags     string // enabled or disabled
}

// up reports whether the instance can take packets.
func (i *instance) up() bool {
	return i != nil && (i.State == stateRunning || i.State == statePending)
}

// gone reports whether the instance is terminated or on its way there.
func (i *instance) gone() bool { return i.State == stateShuttingDown || i.State == stateTerminated }

// powerOn records that the machine is on, or about to be.
func (i *instance) powerOn() { i.Powered, i.Answering, i.Impaired = true, false, false }

// set moves the instance to a state.
func (i *instance) set(s instanceState, reason stateReason, transition string) {
	i.State, i.Reason, i.Transition = s, reason, transition
}

func (t *tx) userInitiated() string {
	return "User initiated (" + t.now.UTC().Format("2006-01-02 15:04:05 MST") + ")"
}

type stateItem struct {
	Code int    `xml:"code"`
	Name string `xml:"name"`
}

func (s instanceState) item() stateItem { return stateItem{int(s), s.String()} }

type instanceItem struct {
	ID                 string         `xml:"instanceId"`
	ImageID            string         `xml:"imageId"`
	State              stateItem      `xml:"instanceState"`
	PrivateDNS         string         `xml:"privateDnsName"`
	PublicDNS          string         `xml:"dnsName"`
	Reason             string         `xml:"reason"`
	StateReason        *stateReason   `xml:"stateReason,omitempty"`
	KeyName            string         `xml:"keyName,omitempty"`
	LaunchIndex        int            `xml:"amiLaunchIndex"`
	Type               string         `xml:"instanceType"`
	LaunchTime         time.Time      `xml:"launchTime"`
	Placement          placementItem  `xml:"placement"`
	Monitoring         string         `xml:"monitoring>state"`
	SubnetID           string         `xml:"subnetId,omitempty"`
	VPCID              string         `xml:"vpcId,omitempty"`
	PrivateIP          string         `xml:"privateIpAddress,omitempty"`
	PublicIP           string         `xml:"ipAddress,omitempty"`
	SourceDestCheck    *bool          `xml:"sourceDestCheck,omitempty"`
	Groups             []groupRef     `xml:"groupSet>item"`
	Architecture       string         `xml:"architecture"`
	RootDeviceType     string         `xml:"rootDeviceType"`
	RootDeviceName     string         `xml:"rootDeviceName"`
	BlockDevices       []deviceItem   `xml:"blockDeviceMapping>item"`
	VirtualizationType string         `xml:"virtualizationType"`
	ClientToken        string         `xml:"clientToken"`
	Tags               []tag          `xml:"tagSet>item"`
	Hypervisor         string         `xml:"hypervisor"`
	Interfaces         []instanceENI  `xml:"networkInterfaceSet>item"`
	EBSOptimized       bool           `xml:"ebsOptimized"`
	ENASupport         bool           `xml:"enaSupport"`
	CPUOptions         cpuOptionsItem `xml:"cpuOptions"`
	MetadataOptions    metadataItem   `xml:"metadataOptions"`
	PlatformDetails    string         `xml:"platformDetails"`
	BootMode           string         `xml:"currentInstanceBootMode"`
	Profile            *Profile       `xml:"iamInstanceProfile,omitempty"`
	Lifecycle          string         `xml:"instanceLifecycle,omitempty"`
	SpotRequest        string         `xml:"spotInstanceRequestId,omitempty"`
}

type placementItem struct {
	Zone    string `xml:"availabilityZone"`
	ZoneID  string `xml:"availabilityZoneId"`
	Tenancy string `xml:"tenancy"`
	Group   string `xml:"groupName"`
	GroupID string `xml:"groupId,omitempty"`
}

type cpuOptionsItem struct {
	Cores   int `xml:"coreCount"`
	Threads int `xml:"threadsPerCore"`
}

type metadataItem struct {
	State    string `xml:"state"`
	Tokens   string `xml:"httpTokens"`
	HopLimit int    `xml:"httpPutResponseHopLimit"`
	Endpoint string `xml:"httpEndpoint"`
	IPv6     string `xml:"httpProtocolIpv6"`
	Tags     string `xml:"instanceMetadataTags"`
}

func (m metadataOptions) item() metadataItem {
	return metadataItem{"applied", m.Tokens, m.HopLimit, m.Endpoint, "disabled", m.Tags}
}

type deviceItem struct {
	Name string    `xml:"deviceName"`
	EBS  ebsDevice `xml:"ebs"`
}

type ebsDevice struct {
	VolumeID            string    `xml:"volumeId"`
	Status              string    `xml:"status"`
	AttachTime          time.Time `xml:"attachTime"`
	DeleteOnTermination bool      `xml:"deleteOnTermination"`
}

// instanceENI is an interface as DescribeInstances shows it.
type instanceENI struct {
	ID              string          `xml:"networkInterfaceId"`
	SubnetID        string          `xml:"subnetId"`
	VPCID           string          `xml:"vpcId"`
	Description     string          `xml:"description"`
	OwnerID         string          `xml:"ownerId"`
	Status          string          `xml:"status"`
	MAC             string          `xml:"macAddress"`
	PrivateIP       string          `xml:"privateIpAddress"`
	PrivateDNS      string          `xml:"privateDnsName"`
	SourceDestCheck bool            `xml:"sourceDestCheck"`
	Groups          []groupRef      `xml:"groupSet>item"`
	Attachment      eniAttachment   `xml:"attachment"`
	Association     *eniAssociation `xml:"association,omitempty"`
	Addresses       []eniAddress    `xml:"privateIpAddressesSet>item"`
	Type            string          `xml:"interfaceType"`
}

// instanceItem returns an instance as shown. A terminated one has no network.
func (t *tx) instanceItem(i *instance) instanceItem {
	cores, threads := instanceTypes[i.Type].cores()
	item := instanceItem{
		ID: i.ID, ImageID: i.Image, State: i.State.item(), Reason: i.Transition, KeyName: i.KeyName, LaunchIndex: i.LaunchIndex,
		Type: i.Type, LaunchTime: i.LaunchTime, Placement: placementItem{i.Zone, t.c.zoneID(i.Zone), "default", i.Group, ""}, Monitoring: "disabled",
		Architecture: instanceTypes[i.Type].architecture(), RootDeviceType: "ebs", RootDeviceName: rootDevice, VirtualizationType: "hvm",
		ClientToken: i.ClientToken, Tags: t.tags(i.ID), Hypervisor: "xen", EBSOptimized: i.EBSOptimized, ENASupport: true,
		CPUOptions: cpuOptionsItem{cores, threads}, MetadataOptions: i.Metadata.item(), PlatformDetails: "Linux/UNIX", BootMode: "uefi",
	}
	if g := t.placementGroup(i.Group); g != nil {
		item.Placement.GroupID = g.ID
	}
	if i.Spot != nil {
		item.Lifecycle, item.SpotRequest = marketSpot, i.Spot.ID
	}
	if i.Monitoring {
		item.Monitoring = "enabled"
	}
	if a := t.profileOf(i.ID); a != nil {
		item.Profile = &a.Profile
	}
	if i.Reason.Code != "" {
		item.StateReason = &i.Reason
	}
	for _, v := range t.attachedTo(i) {
		item.BlockDevices = append(item.BlockDevices, deviceItem{v.Device, ebsDevice{v.ID, v.attachment(), v.Attached, v.DeleteOnTermination}})
	}
	e := asSeen(t, i.Interface, t.st.Interfaces[i.Interface])
	if e == nil || e.Instance != i.ID {
		return item
	}
	item.SubnetID, item.VPCID, item.PrivateIP = e.Subnet, e.VPC, e.PrivateIP.String()
	item.PrivateDNS = t.privateDNS(e.PrivateIP)
	item.SourceDestCheck, item.Groups = &e.SourceDestCheck, t.groupRefs(e.Groups)
	if ip := t.publicIP(e); ip.IsValid() {
		item.PublicIP, item.PublicDNS = ip.String(), t.publicDNS(e.VPC, ip)
	}
	f := t.interfaceItem(e)
	f.Attachment.InstanceID, f.Attachment.InstanceOwnerID = "", ""
	item.Interfaces = []instanceENI{{
		f.ID, f.SubnetID, f.VPCID, f.Description, f.OwnerID, f.Status, f.MAC, f.PrivateIP, f.PrivateDNS,
		f.SourceDestCheck, f.Groups, *f.Attachment, f.Association, f.Addresses, f.Type,
	}}
	return item
}
