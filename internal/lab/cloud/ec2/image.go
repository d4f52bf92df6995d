package ec2

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// Image is a machine image.
type Image struct {
	ID      string // "ami-..."
	Name    string
	Release string    // of Debian: "13"; empty for an image that is not Debian's
	ARM     bool      // for arm64 processors
	Owner   string    // its AWS account; empty for that in which Debian publishes
	Created time.Time // zero for a moment in 2025
	SizeGiB int       // of its root volume; zero for that of Debian's
}

func (i Image) size() int { return cmp.Or(i.SizeGiB, imageSizeGiB) }

const (
	// debianOwner is the AWS account in which Debian publishes its images
	// (wiki.debian.org/Cloud/AmazonEC2Image).
	debianOwner = "136693071363"
	imageTime   = "2006-01-02T15:04:05.000Z"
)

var imageCreated = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

// imageOwner matches what a request may give as an owner of images.
var imageOwner = regexp.MustCompile(`^(?:[0-9]{12}|self|amazon|aws-marketplace|aws-backup-vault)$`)

// PublicParameter returns the name of the SSM parameter in which Debian publishes the id of its current
// image of the release and architecture.
func (i Image) PublicParameter() string {
	arch := "amd64"
	if i.ARM {
		arch = "arm64"
	}
	return "/aws/service/debian/release/" + i.Release + "/latest/" + arch
}

func (i Image) architecture() string { return architecture(i.ARM) }

var imageActions = map[string]action{"DescribeImages": reads(describeImages)}

var imageID = regexp.MustCompile(`^ami-[0-9a-f]{8}(?:[0-9a-f]{9})?$`)

// findImage returns the image with the id, or EC2's error for a bad id.
func (c *Compute) findImage(id string) (*Image, error) {
	if !imageID.MatchString(id) {
		return nil, wire.Refuse("InvalidAMIID.Malformed", `Invalid id: "%s" (expecting "ami-...")`, id)
	}
	for n := range c.cfg.Images {
		if i := &c.cfg.Images[n]; i.ID == id {
			return i, nil
		}
	}
	return nil, wire.Refuse("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", id)
}

// findImage returns the image with the id as Compute's does, if the account's settings allow it.
func (t *tx) findImage(id string) (*Image, error) {
	i, err := t.c.findImage(id)
	if err == nil && !t.allowed(i) {
		return nil, wire.Refuse("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", id)
	}
	return i, err
}

// Publish adds an image, which is the newest one of its release and architecture from now on.
func (c *Compute) Publish(i Image) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cfg.Images = slices.Insert(slices.Clone(c.cfg.Images), 0, i)
}

// PublicParameter returns the value of a public parameter of AWS: the id of an image. Debian publishes none in China.
// https://wiki.debian.org/Cloud/AmazonEC2Image
func (c *Compute) PublicParameter(name string) (string, bool) {
	if strings.HasPrefix(c.cfg.Region, "cn-") {
		return "", false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, i := range c.cfg.Images {
		if i.Release != "" && name == i.PublicParameter() {
			return i.ID, true
		}
	}
	return "", false
}

// snapshotID returns the id of the snapshot that an image's root volumes are made from.
func snapshotID(image string) string { return "snap-" + strings.TrimPrefix(image, "ami-") }

type imageItem struct {
	ID                 string        `xml:"imageId"`
	Location           string        `xml:"imageLocation"`
	State              string        `xml:"imageState"`
	OwnerID            string        `xml:"imageOwnerId"`
	Public             bool          `xml:"isPublic"`
	Architecture       string        `xml:"architecture"`
	Type               string        `xml:"imageType"`
	Name               string        `xml:"name"`
	Description        string        `xml:"description"`
	RootDeviceType     string        `xml:"rootDeviceType"`
	RootDeviceName     string        `xml:"rootDeviceName"`
	BlockDevices       []imageDevice `xml:"blockDeviceMapping>item"`
	VirtualizationType string        `xml:"virtualizationType"`
	Hypervisor         string        `xml:"hypervisor"`
	ENASupport         bool          `xml:"enaSupport"`
	CreationDate       string        `xml:"creationDate"`
	BootMode           string        `xml:"bootMode"`
	IMDSSupport        string        `xml:"imdsSupport"`
	PlatformDetails    string        `xml:"platformDetails"`
	UsageOperation     string        `xml:"usageOperation"`
}

type imageDevice struct {
	Name string `xml:"deviceName"`
	EBS  struct {
		SnapshotID          string `xml:"snapshotId"`
		Size                int    `xml:"volumeSize"`
		Type                string `xml:"volumeType"`
		DeleteOnTermination bool   `xml:"deleteOnTermination"`
		Encrypted           bool   `xml:"encrypted"`
	} `xml:"ebs"`
}

func (i Image) item() imageItem {
	created := i.Created
	if created.IsZero() {
		created = imageCreated
	}
	owner := cmp.Or(i.Owner, debianOwner)
	item := imageItem{
		ID: i.ID, Location: "amazon/" + i.Name, State: "available", OwnerID: owner, Public: owner == debianOwner, Architecture: i.architecture(),
		Type: "machine", Name: i.Name, Description: "Debian " + i.Release + " as the local EC2 boots it", RootDeviceType: "ebs", RootDeviceName: rootDevice,
		VirtualizationType: "hvm", Hypervisor: "xen", ENASupport: true, CreationDate: created.UTC().Format(imageTime), BootMode: "uefi-preferred",
		IMDSSupport: "v2.0", PlatformDetails: "Linux/UNIX", UsageOperation: "RunInstances",
	}
	if !item.Public {
		item.Location, item.Description = owner+"/"+i.Name, ""
	}
	d := imageDevice{Name: rootDevice}
	d.EBS.SnapshotID, d.EBS.Size, d.EBS.Type, d.EBS.DeleteOnTermination = snapshotID(i.ID), i.size(), defaultVolType, true
	item.BlockDevices = []imageDevice{d}
	return item
}

func ofImage(f func(imageItem) string) func(*tx, *Image) []string {
	return func(_ *tx, i *Image) []string { return one(f(i.item())) }
}

var imageFields = fields[Image]{
	"image-id":            ofImage(func(i imageItem) string { return i.ID }),
	"name":                ofImage(func(i imageItem) string { return i.Name }),
	"description":         ofImage(func(i imageItem) string { return i.Description }),
	"architecture":        ofImage(func(i imageItem) string { return i.Architecture }),
	"state":               ofImage(func(i imageItem) string { return i.State }),
	"owner-id":            ofImage(func(i imageItem) string { return i.OwnerID }),
	"is-public":           func(_ *tx, i *Image) []string { return yesNo(i.item().Public) },
	"ena-support":         func(*tx, *Image) []string { return yesNo(true) },
	"image-type":          ofImage(func(i imageItem) string { return i.Type }),
	"root-device-type":    ofImage(func(i imageItem) string { return i.RootDeviceType }),
	"root-device-name":    ofImage(func(i imageItem) string { return i.RootDeviceName }),
	"virtualization-type": ofImage(func(i imageItem) string { return i.VirtualizationType }),
	"hypervisor":          ofImage(func(i imageItem) string { return i.Hypervisor }),
	"creation-date":       ofImage(func(i imageItem) string { return i.CreationDate }),
	"block-device-mapping.volume-type": func(*tx, *Image) []string {
		return one(defaultVolType)
	},
}

type describeImagesRequest struct {
	describeRequest
	ImageIds          []string `query:"ImageId"`
	Owners            []string `query:"Owner"`
	ExecutableBy      []string
	IncludeDeprecated bool
	IncludeDisabled   bool
}

type describeImagesResponse struct {
	Images    []imageItem `xml:"imagesSet>item"`
	NextToken string      `xml:"nextToken,omitempty"`
}

func describeImages(t *tx, in *describeImagesRequest) (any, error) {
	for _, id := range in.ImageIds {
		if _, err := t.findImage(id); err != nil {
			return nil, err
		}
	}
	if err := checkFilters(in.Filters, imageFields); err != nil {
		return nil, err
	}
	owners := slices.Clone(in.Owners)
	for n, o := range owners {
		if !imageOwner.MatchString(o) {
			return nil, wire.Refuse("InvalidUserID.Malformed", `Invalid user id: "%s"`, o)
		}
		if o == "self" {
			owners[n] = t.c.cfg.AccountID
		}
	}
	var out describeImagesResponse
	for n := range t.c.cfg.Images {
		i := &t.c.cfg.Images[n]
		asked := t.allowed(i) && (len(in.ImageIds) == 0 || slices.Contains(in.ImageIds, i.ID)) && (len(owners) == 0 || slices.Contains(owners, i.item().OwnerID))
		if asked && t.matches(i.ID, in.Filters, func(f string) []string { return imageFields[f](t, i) }) {
			out.Images = append(out.Images, i.item())
		}
	}
	return out, nil
}
