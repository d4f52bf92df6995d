package ec2

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// instanceType is an instance type's size (EC2 instance types guide).
type instanceType struct {
	vcpus     int
	memoryMiB int
	arm       bool
}

// instanceTypes are the burstable sizes of the t families, and sizes of the m, c and r families.
var instanceTypes = func() map[string]instanceType {
	out := map[string]instanceType{"m1.small": {1, 1740, false}}
	burstable := map[string]instanceType{
		"nano": {2, 512, false}, "micro": {2, 1024, false}, "small": {2, 2048, false}, "medium": {2, 4096, false},
		"large": {2, 8192, false}, "xlarge": {4, 16384, false}, "2xlarge": {8, 32768, false},
	}
	for _, family := range []string{"t2", "t3", "t3a", "t4g"} {
		for size, it := range burstable {
			it.arm = family == "t4g"
			if family == "t2" && it.memoryMiB <= 2048 {
				it.vcpus = 1
			}
			out[family+"."+size] = it
		}
	}
	perCore := map[string]int{"m4": 4, "m5": 4, "m6i": 4, "m6a": 4, "m7i": 4, "m6g": 4, "c5": 2, "c6i": 2, "c7i": 2, "r5": 8, "r6i": 8, "r7i": 8}
	for family, gib := range perCore {
		for size, vcpus := range map[string]int{"large": 2, "xlarge": 4, "2xlarge": 8, "4xlarge": 16, "8xlarge": 32} {
			out[family+"."+size] = instanceType{vcpus, vcpus * gib * 1024, family == "m6g"}
		}
	}
	return out
}()

var instanceTypeActions = map[string]action{
	"DescribeInstanceTypes":         reads(describeInstanceTypes),
	"DescribeInstanceTypeOfferings": reads(describeOfferings),
}

// burstable reports whether a type earns CPU credits.
func burstable(name string) bool { return name[0] == 't' }

// The hypervisors of instances.
const (
	xen   = "xen" // gives the machine a volume as /dev/xvdf, without a name that has the volume's id
	nitro = "nitro"
)

// hypervisor returns what runs instances of a type.
func hypervisor(name string) string {
	family, _, _ := strings.Cut(name, ".")
	if slices.Contains([]string{"m1", "m4", "t2"}, family) {
		return xen
	}
	return nitro
}

// notOffered are the families that zones lack, by the zone's letter. AWS' zones differ likewise: the
// zone of us-east-1 with the id use1-az3 has no t3.
var notOffered = map[string][]string{"c": {"t3", "t3a", "m7i"}}

// offered reports whether a zone has a type.
func (c *Compute) offered(name, zone string) bool {
	family, _, _ := strings.Cut(name, ".")
	return !slices.Contains(lacking(zone), family) && (c.cfg.ARM || !instanceTypes[name].arm)
}

// lacking returns the families that a zone lacks.
func lacking(zone string) []string { return notOffered[zone[len(zone)-1:]] }

// checkOffered refuses to run a type in a zone that lacks it. EC2 finds that at a launch or start,
// not when a type is changed.
func (t *tx) checkOffered(name, zone string) error {
	if t.c.offered(name, zone) {
		return nil
	}
	var others []string
	for _, z := range t.c.zones() {
		if t.c.offered(name, z) {
			others = append(others, z)
		}
	}
	if len(others) == 0 {
		return wire.Refuse("Unsupported", "The requested configuration is currently not supported. Please check the documentation for supported configurations.")
	}
	return wire.Refuse("Unsupported", "Your requested instance type (%s) is not supported in your requested Availability Zone (%s). Please retry your request by not specifying an Availability Zone or choosing %s.",
		name, zone, strings.Join(others, ", "))
}

func (it instanceType) cores() (cores, threads int) {
	if it.arm || it.vcpus < 2 {
		return it.vcpus, 1
	}
	return it.vcpus / 2, 2
}

// usableMiB is how much memory the instance's kernel finds. The hypervisor, the firmware and the
// kernel keep some of the type's. It was measured as 463452 KiB of a t3a.nano's 512 MiB
// (karpenter-provider-aws#419), about 3.8 GiB of a t3.medium's 4, and at most 5.3 % of large types
// (pytorch/ci-infra#910). 38 MiB and a 24th keep to these.
func (it instanceType) usableMiB() int { return it.memoryMiB - it.memoryMiB/24 - 38 }

func (it instanceType) architecture() string { return architecture(it.arm) }

func architecture(arm bool) string {
	if arm {
		return "arm64"
	}
	return "x86_64"
}

// checkInstanceType refuses unknown types and those of another architecture.
func checkInstanceType(name string, arm bool) error {
	it, ok := instanceTypes[name]
	if !ok {
		return invalidValue("Invalid value '%s' for InstanceType.", name)
	}
	if it.arm != arm {
		return invalidValue("The architecture '%s' of the specified instance type does not match the architecture '%s' of the specified AMI. Specify an instance type and an AMI that have matching architectures, and try again.", it.architecture(), architecture(arm))
	}
	return nil
}

type typeItem struct {
	Name              string   `xml:"instanceType"`
	CurrentGeneration bool     `xml:"currentGeneration"`
	BareMetal         bool     `xml:"bareMetal"`
	Burstable         bool     `xml:"burstablePerformanceSupported"`
	Hypervisor        string   `xml:"hypervisor"`
	UsageClasses      []string `xml:"supportedUsageClasses>item"`
	RootDevices       []string `xml:"supportedRootDeviceTypes>item"`
	Virtualization    []string `xml:"supportedVirtualizationTypes>item"`
	Processor         struct {
		Architectures []string `xml:"supportedArchitectures>item"`
	} `xml:"processorInfo"`
	VCPU struct {
		Default int `xml:"defaultVCpus"`
		Cores   int `xml:"defaultCores"`
		Threads int `xml:"defaultThreadsPerCore"`
	} `xml:"vCpuInfo"`
	Memory struct {
		MiB int `xml:"sizeInMiB"`
	} `xml:"memoryInfo"`
	InstanceStorage bool `xml:"instanceStorageSupported"`
	EBS             struct {
		Optimized  string `xml:"ebsOptimizedSupport"`
		Encryption string `xml:"encryptionSupport"`
		NVMe       string `xml:"nvmeSupport"`
	} `xml:"ebsInfo"`
	Network struct {
		MaxInterfaces int    `xml:"maximumNetworkInterfaces"`
		IPv4PerENI    int    `xml:"ipv4AddressesPerInterface"`
		ENA           string `xml:"enaSupport"`
	} `xml:"networkInfo"`
}

func newTypeItem(name string, it instanceType) typeItem {
	item := typeItem{
		Name: name, CurrentGeneration: !strings.HasPrefix(name, "m1."), Burstable: burstable(name), Hypervisor: hypervisor(name),
		UsageClasses: []string{"on-demand", "spot"}, RootDevices: []string{"ebs"}, Virtualization: []string{"hvm"},
	}
	item.Processor.Architectures = []string{it.architecture()}
	item.VCPU.Default = it.vcpus
	item.VCPU.Cores, item.VCPU.Threads = it.cores()
	item.Memory.MiB = it.memoryMiB
	item.EBS.Optimized, item.EBS.Encryption, item.EBS.NVMe = "default", "supported", "required"
	item.Network.MaxInterfaces, item.Network.IPv4PerENI, item.Network.ENA = 1, 1, "required" // the lab's, not the real type's
	if item.Hypervisor == xen {
		item.EBS.NVMe, item.Network.ENA = "unsupported", "unsupported"
	}
	return item
}

var typeFields = fields[typeItem]{
	"instance-type":                         func(_ *tx, i *typeItem) []string { return one(i.Name) },
	"current-generation":                    func(_ *tx, i *typeItem) []string { return yesNo(i.CurrentGeneration) },
	"bare-metal":                            func(*tx, *typeItem) []string { return yesNo(false) },
	"burstable-performance-supported":       func(_ *tx, i *typeItem) []string { return yesNo(i.Burstable) },
	"hypervisor":                            func(_ *tx, i *typeItem) []string { return one(i.Hypervisor) },
	"processor-info.supported-architecture": func(_ *tx, i *typeItem) []string { return i.Processor.Architectures },
	"supported-usage-class":                 func(_ *tx, i *typeItem) []string { return i.UsageClasses },
	"supported-root-device-type":            func(_ *tx, i *typeItem) []string { return i.RootDevices },
	"supported-virtualization-type":         func(_ *tx, i *typeItem) []string { return i.Virtualization },
	"vcpu-info.default-vcpus":               func(_ *tx, i *typeItem) []string { return one(strconv.Itoa(i.VCPU.Default)) },
	"memory-info.size-in-mib":               func(_ *tx, i *typeItem) []string { return one(strconv.Itoa(i.Memory.MiB)) },
}

type describeTypesRequest struct {
	describeRequest
	InstanceTypes []string `query:"InstanceType"`
}

type describeTypesResponse struct {
	Types     []typeItem `xml:"instanceTypeSet>item"`
	NextToken string     `xml:"nextToken,omitempty"`
}

func describeInstanceTypes(t *tx, in *describeTypesRequest) (any, error) {
	for _, name := range in.InstanceTypes {
		if _, ok := instanceTypes[name]; !ok {
			return nil, wire.Refuse("InvalidInstanceType", "The following supplied instance types do not exist: [%s]", name)
		}
	}
	if err := checkFilters(in.Filters, typeFields); err != nil {
		return nil, err
	}
	var names []string
	for _, name := range slices.Sorted(maps.Keys(instanceTypes)) {
		item := newTypeItem(name, instanceTypes[name])
		if (len(in.InstanceTypes) == 0 || slices.Contains(in.InstanceTypes, name)) &&
			t.matches(name, in.Filters, func(f string) []string { return typeFields[f](t, &item) }) {
			names = append(names, name)
		}
	}
	names, next, err := t.cut(names, in.MaxResults, in.NextToken, 5, len(in.InstanceTypes) > 0)
	if err != nil {
		return nil, err
	}
	out := describeTypesResponse{NextToken: next}
	for _, name := range names {
		out.Types = append(out.Types, newTypeItem(name, instanceTypes[name]))
	}
	return out, nil
}

type describeOfferingsRequest struct {
	describeRequest
	LocationType string
}

type offeringItem struct {
	Type         string `xml:"instanceType"`
	LocationType string `xml:"locationType"`
	Location     string `xml:"location"`
}

var offeringFields = fields[offeringItem]{
	"instance-type": func(_ *tx, o *offeringItem) []string { return one(o.Type) },
	"location":      func(_ *tx, o *offeringItem) []string { return one(o.Location) },
}

type describeOfferingsResponse struct {
	Offerings []offeringItem `xml:"instanceTypeOfferingSet>item"`
	NextToken string         `xml:"nextToken,omitempty"`
}

func describeOfferings(t *tx, in *describeOfferingsRequest) (any, error) {
	locations := map[string]string{} // the place's name, and a zone that stands for it
	switch in.LocationType {
	case "", "region":
		in.LocationType, locations[t.c.cfg.Region] = "region", t.c.zones()[0] // which has every type
	case "availability-zone":
		for _, z := range t.c.allZones() {
			locations[z] = z
		}
	case "availability-zone-id":
		for _, z := range t.c.allZones() {
			locations[t.c.zoneID(z)] = z
		}
	default:
		return nil, invalidValue("Value (%s) for parameter locationType is invalid.", in.LocationType)
	}
	if err := checkFilters(in.Filters, offeringFields); err != nil {
		return nil, err
	}
	offerings := map[string]offeringItem{}
	for name := range instanceTypes {
		for l, zone := range locations {
			o := offeringItem{name, in.LocationType, l}
			if t.c.offered(name, zone) && t.matches("", in.Filters, func(f string) []string { return offeringFields[f](t, &o) }) {
				offerings[name+" "+l] = o
			}
		}
	}
	keys, next, err := t.cut(slices.Sorted(maps.Keys(offerings)), in.MaxResults, in.NextToken, 5, false)
	if err != nil {
		return nil, err
	}
	out := describeOfferingsResponse{NextToken: next}
	for _, k := range keys {
		out.Offerings = append(out.Offerings, offerings[k])
	}
	return out, nil
}
