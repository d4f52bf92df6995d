package ec2

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// maxUserData is the limit of user data before base64, in bytes.
const maxUserData = 16 * 1024

type runInstancesRequest struct {
	request
	ImageId                           string
	InstanceType                      string
	MinCount                          int
	MaxCount                          int
	ClientToken                       string
	KeyName                           string
	UserData                          string
	SubnetId                          *string
	PrivateIpAddress                  string
	SecurityGroupIds                  []string `query:"SecurityGroupId"`
	SecurityGroups                    []string `query:"SecurityGroup"`
	InstanceInitiatedShutdownBehavior string
	DisableApiTermination             bool
	DisableApiStop                    bool
	EbsOptimized                      bool
	Monitoring                        struct{ Enabled bool }
	CreditSpecification               struct{ CpuCredits string }
	MaintenanceOptions                struct{ AutoRecovery string }
	MetadataOptions                   metadataOptionsRequest
	Placement                         struct{ AvailabilityZone, Tenancy, GroupName string }
	PrivateDnsNameOptions             struct {
		HostnameType                    string
		EnableResourceNameDnsARecord    bool
		EnableResourceNameDnsAAAARecord bool
	}
	IamInstanceProfile    *profileSpec
	InstanceMarketOptions *marketRequest
	BlockDeviceMappings   []blockDeviceMapping `query:"BlockDeviceMapping"`
	NetworkInterfaces     []interfaceSpec      `query:"NetworkInterface"`
	TagSpecifications     []tagSpecification   `query:"TagSpecification"`
}

type metadataOptionsRequest struct {
	HttpTokens              string
	HttpPutResponseHopLimit *int
	HttpEndpoint            string
	HttpProtocolIpv6        string
	InstanceMetadataTags    string
}

type interfaceSpec struct {
	DeviceIndex              *int
	NetworkCardIndex         *int
	AssociatePublicIpAddress *bool
	DeleteOnTermination      *bool
	Description              string
	Groups                   []string `query:"SecurityGroupId"`
	InterfaceType            string
	PrivateIpAddress         string
	PrivateIpAddresses       []struct {
		PrivateIpAddress string
		Primary          bool
	}
	SubnetId *string
}

type reservationItem struct {
	ID        string         `xml:"reservationId"`
	OwnerID   string         `xml:"ownerId"`
	Groups    []groupRef     `xml:"groupSet>item"`
	Instances []instanceItem `xml:"instancesSet>item"`
}

// plan is a checked RunInstances request, with what each instance gets.
type plan struct {
	in       *runInstancesRequest
	subnet   *subnet
	nic      interfaceSpec
	groups   []string
	metadata metadataOptions
	profile  Profile // none if its ARN is empty
	spot     bool
	image    *Image
}

func runInstances(t *tx, in *runInstancesRequest) (any, error) {
	ids, token, err := t.resultOf(in.ClientToken)
	if err != nil {
		return nil, err
	}
	if len(ids) > 0 {
		if i := t.st.Instances[ids[0]]; i == nil || i.gone() {
			return nil, wire.Refuse("IdempotentInstanceTerminated", "The request to launch an instance uses the same client token as a previous request for which the instance has been terminated.")
		}
		return t.reservation(ids), nil
	}
	p, err := t.planRun(in)
	if err != nil {
		return nil, err
	}
	if in.MaxCount, err = t.launchable(in.InstanceType, p.spot, in.MinCount, in.MaxCount); err != nil {
		return nil, err
	}
	if in.MaxCount, err = t.roomFor(in.InstanceType, p.subnet.Zone, in.MinCount, in.MaxCount); err != nil {
		return nil, err
	}
	if in.MaxCount, err = t.placeable(in.Placement.GroupName, in.InstanceType, p.subnet.Zone, in.MinCount, in.MaxCount); err != nil {
		return nil, err
	}
	reservation := t.newID("r")
	for n := range in.MaxCount {
		i, err := t.newInstance(p, reservation, n)
		if err != nil {
			if n >= in.MinCount && wire.AsError(err).Code == "InsufficientFreeAddressesInSubnet" {
				break
			}
			return nil, err
		}
		ids = append(ids, i.ID)
		t.afterCommit(func() { t.c.launch(i.ID) })
	}
	t.saveResult(token, ids...)
	return t.reservation(ids), nil
}

// reservation returns the current state of instances that were launched together.
func (t *tx) reservation(ids []string) reservationItem {
	r := reservationItem{OwnerID: t.c.cfg.AccountID}
	for _, id := range ids {
		if i := t.st.Instances[id]; i != nil {
			r.ID = i.Reservation
			r.Instances = append(r.Instances, t.instanceItem(i))
		}
	}
	return r
}

func (t *tx) planRun(in *runInstancesRequest) (*plan, error) {
	switch {
	case in.ImageId == "":
		return nil, missing("ImageId")
	case in.MinCount == 0:
		return nil, missing("MinCount")
	case in.MaxCount == 0:
		return nil, missing("MaxCount")
	case in.MinCount < 1 || in.MaxCount < in.MinCount:
		return nil, invalidValue("Value (%d) for parameter minCount is invalid. It must be a positive number not greater than maxCount.", in.MinCount)
	case in.Placement.Tenancy != "" && in.Placement.Tenancy != "default":
		return nil, invalidValue("Value (%s) for parameter tenancy is invalid.", in.Placement.Tenancy)
	}
	image, err := t.findImage(in.ImageId)
	if err != nil {
		return nil, err
	}
	if state := t.imageState(image); state != imageAvailable {
		return nil, wire.Refuse("InvalidAMIID.Unavailable", "The image ID '%s' is not available: its state is %s", image.ID, state)
	}
	in.InstanceType = cmp.Or(in.InstanceType, "m1.small")
	if err := checkInstanceType(in.InstanceType, image.ARM); err != nil {
		return nil, err
	}
	if err := checkCredits(in.CreditSpecification.CpuCredits, in.InstanceType); err != nil {
		return nil, err
	}
	spot, err := in.checkMarket()
	if err != nil {
		return nil, err
	}
	if err := checkUserData(in.UserData); err != nil {
		return nil, err
	}
	if in.KeyName != "" && t.keyPair(in.KeyName) == nil {
		return nil, kindKeyPair.notFoundError(in.KeyName)
	}
	in.InstanceInitiatedShutdownBehavior = cmp.Or(in.InstanceInitiatedShutdownBehavior, "stop")
	if err := checkShutdownBehavior(in.InstanceInitiatedShutdownBehavior); err != nil {
		return nil, err
	}
	if err := checkSpecs(in.TagSpecifications, kindInstance, kindVolume, kindInterface); err != nil {
		return nil, err
	}
	p := &plan{in: in, spot: spot, image: image}
	// EC2 takes these defaults from the image, unless the account has others. Debian's requires IMDSv2 (imds-support v2.0).
	p.metadata = metadataOptions{Tokens: image.tokens(), HopLimit: 2, Endpoint: "enabled", Tags: "disabled"}
	p.metadata.preferred(t.st.Settings.Metadata)
	if err := p.metadata.change(in.MetadataOptions); err != nil {
		return nil, err
	}
	if in.IamInstanceProfile != nil {
		var err error
		if p.profile, err = t.profile(in.IamInstanceProfile); err != nil {
			return nil, err
		}
	}
	return p, t.planNetwork(p)
}

// planNetwork determines subnet, address and groups, from the network interface of the request, or
// else from the instance-level parameters.
func (t *tx) planNetwork(p *plan) error {
	in := p.in
	if len(in.SecurityGroups) > 0 {
		return wire.Refuse("InvalidGroup.NotFound", "The security group '%s' does not exist in default VPC", in.SecurityGroups[0])
	}
	combination := func(what string) error {
		return wire.Refuse("InvalidParameterCombination", "Network interfaces and an instance-level %s may not be specified on the same request", what)
	}
	p.nic = interfaceSpec{SubnetId: in.SubnetId, PrivateIpAddress: in.PrivateIpAddress, Groups: in.SecurityGroupIds}
	if len(in.NetworkInterfaces) > 0 {
		switch {
		case in.SubnetId != nil:
			return combination("subnet ID")
		case len(in.SecurityGroupIds) > 0:
			return combination("security groups")
		case in.PrivateIpAddress != "":
			return combination("private IP address")
		case len(in.NetworkInterfaces) > 1:
			return wire.Refuse("AttachmentLimitExceeded", "Interface count %d exceeds the limit for %s", len(in.NetworkInterfaces), in.InstanceType)
		}
		p.nic = in.NetworkInterfaces[0]
		if p.nic.DeviceIndex == nil {
			return wire.Refuse("MissingParameter", "Each network interface requires a device index.")
		}
		if *p.nic.DeviceIndex != 0 {
			return invalidValue("A network interface with device index 0 is required")
		}
		for _, a := range p.nic.PrivateIpAddresses {
			if p.nic.PrivateIpAddress != "" || !a.Primary {
				return wire.Refuse("PrivateIpAddressLimitExceeded", "Instances here have one private address")
			}
			p.nic.PrivateIpAddress = a.PrivateIpAddress
		}
	}
	var err error
	p.subnet, err = findOr(t, kindSubnet, t.st.Subnets, "subnetId", p.nic.SubnetId, func() (*subnet, error) {
		return t.defaultSubnet(in.InstanceType, in.Placement.AvailabilityZone)
	})
	if err != nil {
		return err
	}
	if z := in.Placement.AvailabilityZone; z != "" && z != p.subnet.Zone {
		return invalidValue("The availability zone of subnet '%s' is '%s', not '%s'.", p.subnet.ID, p.subnet.Zone, z)
	}
	if err := t.checkOffered(in.InstanceType, p.subnet.Zone); err != nil {
		return err
	}
	if in.MaxCount > 1 && p.nic.PrivateIpAddress != "" {
		return wire.Refuse("InvalidParameterCombination", "A private IP address may be specified for one instance only")
	}
	p.groups = p.nic.Groups
	if len(p.groups) == 0 {
		p.groups = []string{t.defaultGroup(p.subnet.VPC)}
	}
	return t.checkGroups(kindGroup, p.subnet.VPC, p.subnet.ID, p.groups)
}

func (t *tx) newInstance(p *plan, reservation string, index int) (*instance, error) {
	in := p.in
	ip, err := t.takeAddress(p.subnet, p.nic.PrivateIpAddress)
	if err != nil {
		return nil, err
	}
	volumes, err := t.launchVolumes(in.BlockDeviceMappings, p.image, p.subnet.Zone)
	if err != nil {
		return nil, err
	}
	i := &instance{
		ID: t.newID(kindInstance.prefix), Reservation: reservation, LaunchIndex: index, ClientToken: in.ClientToken,
		Image: in.ImageId, Type: in.InstanceType, KeyName: in.KeyName, UserData: in.UserData, State: statePending, Powered: true, LaunchTime: t.now,
		VPC: p.subnet.VPC, Subnet: p.subnet.ID, Zone: p.subnet.Zone, Group: in.Placement.GroupName, PrivateIP: ip, Shutdown: in.InstanceInitiatedShutdownBehavior,
		DisableTermination: in.DisableApiTermination, DisableStop: in.DisableApiStop, EBSOptimized: in.EbsOptimized,
		Monitoring: in.Monitoring.Enabled, CPUCredits: in.CreditSpecification.CpuCredits, Metadata: p.metadata,
	}
	if p.spot {
		i.Spot = t.newSpotRequest(in.InstanceMarketOptions)
	}
	if k := t.keyPair(in.KeyName); k != nil {
		i.PublicKey = k.Public
	}
	e := &iface{
		ID: t.newID(kindInterface.prefix), VPC: i.VPC, Subnet: i.Subnet, Instance: i.ID, AttachmentID: t.newID("eni-attach"),
		AttachTime: t.now, DeleteOnTermination: true, Description: p.nic.Description, MAC: mac(ip), PrivateIP: ip,
		AutoPublic: asSeen(t, p.subnet.ID, p.subnet).MapPublicIP, SourceDestCheck: true, Groups: slices.Clone(p.groups),
	}
	if b := p.nic.DeleteOnTermination; b != nil {
		e.DeleteOnTermination = *b
	}
	if b := p.nic.AssociatePublicIpAddress; b != nil {
		e.AutoPublic = *b
	}
	if err := t.giveAutoPublicIP(e); err != nil {
		return nil, err
	}
	for _, v := range volumes {
		if err := t.roomForVolume(v); err != nil {
			return nil, err
		}
		v.ID, v.Instance = t.newID(kindVolume.prefix), i.ID
		t.st.Volumes[v.ID] = v
		if err := t.applySpecs(in.TagSpecifications, kindVolume, v.ID); err != nil {
			return nil, err
		}
	}
	i.Interface, i.RootVolume = e.ID, volumes[0].ID
	t.st.Instances[i.ID], t.st.Interfaces[e.ID] = i, e
	if p.profile.ARN != "" {
		t.associate(i.ID, p.profile)
	}
	for k, id := range map[kind]string{kindInstance: i.ID, kindInterface: e.ID} {
		if err := t.applySpecs(in.TagSpecifications, k, id); err != nil {
			return nil, err
		}
	}
	return i, t.checkMetadataTags(i)
}

// giveAutoPublicIP gives an interface its automatic public address, at launch and start.
func (t *tx) giveAutoPublicIP(e *iface) error {
	if !e.AutoPublic || t.publicIP(e).IsValid() {
		return nil
	}
	ip, ok := t.takePublicIP()
	if !ok {
		return wire.Refuse("InsufficientAddressCapacity", "Not enough available addresses to satisfy your request.")
	}
	e.PublicIP = ip
	return nil
}

func checkUserData(encoded string) error {
	raw, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return invalidValue("Invalid BASE64 encoding of user data.")
	}
	if len(raw) > maxUserData {
		return invalidValue("User data is limited to %d bytes", maxUserData)
	}
	return nil
}

func checkShutdownBehavior(s string) error {
	if s != "stop" && s != "terminate" {
		return invalidValue("Value (%s) for parameter instanceInitiatedShutdownBehavior is invalid. Expected one of: stop, terminate", s)
	}
	return nil
}

// change applies the options that a request names.
func (m *metadataOptions) change(in metadataOptionsRequest) error {
	for _, o := range []struct {
		name, value string
		allowed     []string
		to          *string
	}{
		{"httpTokens", in.HttpTokens, []string{"optional", "required"}, &m.Tokens},
		{"httpEndpoint", in.HttpEndpoint, []string{"enabled", "disabled"}, &m.Endpoint},
		{"instanceMetadataTags", in.InstanceMetadataTags, []string{"enabled", "disabled"}, &m.Tags},
		{"httpProtocolIpv6", in.HttpProtocolIpv6, []string{"disabled"}, new(string)},
	} {
		if o.value == "" {
			continue
		}
		if !slices.Contains(o.allowed, o.value) {
			return invalidValue("Value (%s) for parameter %s is invalid. Expected one of: %s", o.value, o.name, fmt.Sprint(o.allowed))
		}
		*o.to = o.value
	}
	if n := in.HttpPutResponseHopLimit; n != nil {
		if *n < 1 || *n > 64 {
			return invalidValue("Value (%d) for parameter HttpPutResponseHopLimit is invalid. Expected a number from 1 to 64", *n)
		}
		m.HopLimit = *n
	}
	return nil
}
