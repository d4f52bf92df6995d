// Package machine makes the machines of a cluster: it launches instances with a host key that only they know, keeps them
// as wanted, stops, starts and terminates them, and attaches their data volumes. Networks may not enter, and neither may
// components of Kubernetes: it is given ids, and a command for the first boot.
package machine

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/route"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/volume"
)

// Defaults of a machine.
const (
	DefaultRootVolumeGiB = 20
	DefaultUser          = "admin" // in Debian's images
)

// Spec is the wanted state of one machine.
type Spec struct {
	Cluster, Name string
	// Kind is the kind of the machine in its tags; empty means [aws.KindMachine]. One of another kind is no machine of the
	// cluster: only Launch, Bring, Converge, Observe of its id and Delete know it.
	Kind string
	Role aws.MachineRole

	SubnetID string
	// SecurityGroupIDs are all security groups of the machine. None leaves those that it has, and launches it with the VPC's default group.
	SecurityGroupIDs []string
	// VPCID and NetworkSubnets, the ids of all subnets of the network, say which route tables get
	// the route to the machine's pods: all that apply to one of the subnets, either associated with
	// it or as the VPC's main table.
	VPCID          string
	NetworkSubnets []string
	// RoutedTables lists the tables that got the route earlier. A route in them that leads
	// elsewhere is corrected, and the route is removed from tables that no longer apply to a
	// subnet. A route elsewhere in other tables belongs to others.
	RoutedTables []string
	// PrivateIP never changes during the machine's life; zero lets EC2 choose.
	PrivateIP netip.Addr
	// PodCIDR, when set, is routed to the machine, whose source/destination check is then off.
	PodCIDR netip.Prefix
	// PublicIP asks for a public address at launch.
	PublicIP bool

	// HostKey is the machine's pinned SSH host key. [Observe] returns it if somebody has deleted the tag, and
	// refuses another one in the tag. Empty accepts whatever the tag says, for a machine whose creation has not ended.
	HostKey string

	// Stopped says that the instance is to be stopped, and not to run.
	Stopped bool

	InstanceType string
	// CPUCredits is the credit option of a burstable type, see [CheckCPUCredits]. Empty leaves what EC2
	// chooses.
	CPUCredits string
	// PlacementGroup is the name of the machine's placement group. If it is empty, the machine is in
	// none: it is taken out of one that somebody else has put it into.
	PlacementGroup string
	// Spot makes the machine a Spot instance; nil means On-Demand. It is used only at launch.
	Spot *Spot
	// Image is an AMI id, or the name of an SSM parameter that holds one. ImageFilter, if not nil,
	// finds one instead. They are used only at launch.
	Image         string
	ImageFilter   *ImageFilter
	RootVolumeGiB int32              // zero means DefaultRootVolumeGiB
	RootVolume    volume.Performance // volume.DefaultType if no type is given
	// RootVolumeKey is the id, ARN or alias of the KMS key that encrypts the root volume; empty means
	// the account's for EBS. It is used only at launch.
	RootVolumeKey string

	User           string   // login user that cloud-init makes
	AuthorizedKeys []string // its SSH public keys

	// BootCommand is a shell command that cloud-init runs once, early in the first boot. It is used
	// only at launch. Everyone who may describe the instance can read it. EC2 refuses the launch if
	// it is too long, see UserDataBytes.
	BootCommand string

	// UserData are further user data, beside what the machine needs itself: see [CheckUserData]. They
	// are used only at launch. Everyone who may describe the instance can read them.
	UserData string

	// InstanceProfile is the name of the machine's instance profile. If it is empty, the machine has
	// none: one that somebody else has given it is taken away.
	InstanceProfile string

	// DataVolume is the volume with the machine's data, nil without one.
	DataVolume *DataVolume

	// Claim says who owns the machine. Machines of other owners are neither changed nor terminated.
	Claim aws.Claim

	Tags map[string]string
	// Roll says that the machine takes its turn when machines are replaced for a newer image.
	Roll bool
	// RemoveTags and RemovePodCIDR are what an earlier spec had and this one no longer has.
	RemoveTags    []string
	RemovePodCIDR netip.Prefix
}

// toPods returns the wanted routes to the machine's pods.
func (s Spec) toPods() route.ToPods {
	return route.ToPods{
		Cluster: s.Cluster, Machine: s.Name, VPCID: s.VPCID, SubnetIDs: s.NetworkSubnets,
		RoutedTables: s.RoutedTables, PodCIDR: s.PodCIDR, FormerPodCIDR: s.RemovePodCIDR,
	}
}

// Machine is one instance as found in EC2.
type Machine struct {
	ID                  string
	Cluster, Name, User string // from its tags
	Role                aws.MachineRole
	State               string    // as EC2 calls it: "running", "stopped", ...
	Started             time.Time // when it was last launched or started
	PrivateIP, PublicIP netip.Addr
	ImageID             string
	InstanceType        string
	InstanceProfile     string // name; empty if it has none
	PlacementGroup      string // name; empty if it is in none
	Spot                bool   // a Spot instance
	InterfaceID         string
	SecurityGroupIDs    []string // of its interface, sorted
	SubnetID, VPCID     string
	AvailabilityZone    string
	VolumeID            string
	RootVolumeGiB       int32
	RootVolume          volume.Performance
	RootVolumeKey       string // ARN of its KMS key
	// Data is the data volume that it has, for an import: set by Find only.
	Data *DataVolume
	data *volume.Volume // the wanted data volume, nil if it does not exist: set by Observe only
	// UserData are the further user data that it was launched with: set by Find only.
	UserData string
	// HostKey is the SSH host key in its tags, "ssh-ed25519 AAAA..."; empty before the machine has
	// one of its own.
	HostKey string
	Claim   aws.Claim // its owner
	Tags    map[string]string
	// Unsettled lists the ids of the objects with the claim that are not settled.
	Unsettled []string
	// RouteTables lists the route tables with a route to its pods that leads to it, of those that
	// were read.
	RouteTables []string
}

// Address returns the address at which the machine is reached from outside its network.
func (m Machine) Address() netip.Addr {
	if m.PublicIP.IsValid() {
		return m.PublicIP
	}
	return m.PrivateIP
}

func zoneOfInstance(i types.Instance) string {
	if i.Placement == nil {
		return ""
	}
	return sdk.ToString(i.Placement.AvailabilityZone)
}

func machineOf(i types.Instance) Machine {
	tags := aws.TagMap(i.Tags)
	m := Machine{
		ID:      sdk.ToString(i.InstanceId),
		Cluster: tags[aws.TagCluster], Name: tags[aws.TagResource], Role: aws.MachineRole(tags[aws.TagRole]), User: tags[aws.TagUser],
		State: string(aws.StateOf(i)), Started: sdk.ToTime(i.LaunchTime),
		ImageID: sdk.ToString(i.ImageId), InstanceType: string(i.InstanceType), InstanceProfile: profileIn(i), Spot: isSpot(i),
		AvailabilityZone: zoneOfInstance(i), SubnetID: sdk.ToString(i.SubnetId), VPCID: sdk.ToString(i.VpcId),
		HostKey: tags[aws.TagHostKey], Claim: aws.ClaimIn(tags), Tags: tags,
	}
	m.PrivateIP, _ = netip.ParseAddr(sdk.ToString(i.PrivateIpAddress))
	m.PublicIP, _ = netip.ParseAddr(sdk.ToString(i.PublicIpAddress))
	if i.Placement != nil {
		m.PlacementGroup = sdk.ToString(i.Placement.GroupName)
	}
	if n := primary(i); n != nil {
		m.InterfaceID, m.SecurityGroupIDs = sdk.ToString(n.NetworkInterfaceId), groupIDs(n.Groups)
	}
	for _, d := range i.BlockDeviceMappings {
		if d.Ebs != nil && sdk.ToString(d.DeviceName) == sdk.ToString(i.RootDeviceName) {
			m.VolumeID = sdk.ToString(d.Ebs.VolumeId)
		}
	}
	if aws.OwnerOf(tags).Unsettled() {
		m.Unsettled = m.tagged()
	}
	return m
}

// groups returns the ids of the security groups that the machine is to have, sorted.
func (s Spec) groups() []string {
	return slices.Compact(slices.Sorted(slices.Values(s.SecurityGroupIDs)))
}

func (s Spec) kind() string { return cmp.Or(s.Kind, aws.KindMachine) }

func (s Spec) rootGiB() int32 { return cmp.Or(s.RootVolumeGiB, DefaultRootVolumeGiB) }

// rootVolume returns the wanted performance of the root volume.
func (s Spec) rootVolume() volume.Performance {
	p := s.RootVolume
	p.Type = cmp.Or(p.Type, volume.DefaultType)
	return p
}

// primary returns the interface with index 0.
func primary(i types.Instance) *types.InstanceNetworkInterface {
	for k, n := range i.NetworkInterfaces {
		if n.Attachment == nil || sdk.ToInt32(n.Attachment.DeviceIndex) == 0 {
			return &i.NetworkInterfaces[k]
		}
	}
	return nil
}

func (s Spec) describe(id string) string {
	return strings.TrimSpace("machine " + s.Name + " (" + id + ")")
}
