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

	// The rest is for images that the account has made.
	Description  string
	Snapshot     string // id of the snapshot of its root volume
	VolumeType   string // of its root volume; empty for that of Debian's
	KeepsRoot    bool   // a root volume outlives its instance
	IMDSv1       bool   // instances need no token for their metadata, unless the launch says otherwise
	Instance     string // that it was made of; empty if it was registered
	Source       string // image of that instance
	Deregistered time.Time
}

func (i Image) size() int { return cmp.Or(i.SizeGiB, imageSizeGiB) }

// tokens is the option of the metadata service that instances of the image have by default.
func (i Image) tokens() string {
	if i.IMDSv1 {
		return "optional"
	}
	return "required"
}

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

// image returns the image with an id, also a deregistered one. Nil stands for none.
func (t *tx) image(id string) *Image {
	for n := range t.c.cfg.Images {
		if i := &t.c.cfg.Images[n]; i.ID == id {
			return i
		}
	}
	return t.st.Images[id]
}

// findImage returns the image with the id that a request gives, if the account's settings allow it. One that has been
// deregistered is no longer available, and later not known.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
func (t *tx) findImage(id string) (*Image, error) {
	if err := kindImage.check("imageId", id); err != nil {
		return nil, err
	}
	switch i := t.image(id); {
	case i == nil || !t.allowed(i) || t.c.faults.Hidden(id, t.now):
		return nil, kindImage.notFoundError(id)
	case !i.Deregistered.IsZero():
		return nil, wire.Refuse("InvalidAMIID.Unavailable", "The image ID '%s' is no longer available", id)
	default:
		return i, nil
	}
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

// snapshotID returns the id of the snapshot that the image's root volumes are made from.
func (i Image) snapshotID() string {
	return cmp.Or(i.Snapshot, kindSnapshot.prefix+"-"+strings.TrimPrefix(i.ID, kindImage.prefix+"-"))
}

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
	SourceInstance     string        `xml:"sourceInstanceId,omitempty"`
	SourceImage        string        `xml:"sourceImageId,omitempty"`
	Reason             *stateReason  `xml:"stateReason,omitempty"`
	Tags               []tag         `xml:"tagSet>item"`
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

func (t *tx) imageItem(i *Image) imageItem {
	created := i.Created
	if created.IsZero() {
		created = imageCreated
	}
	owner := cmp.Or(i.Owner, debianOwner)
	item := imageItem{
		ID: i.ID, Location: "amazon/" + i.Name, State: t.imageState(i), OwnerID: owner, Public: owner == debianOwner, Architecture: i.architecture(),
		Type: "machine", Name: i.Name, Description: "Debian " + i.Release + " as the local EC2 boots it", RootDeviceType: "ebs", RootDeviceName: rootDevice,
		VirtualizationType: "hvm", Hypervisor: "xen", ENASupport: true, CreationDate: created.UTC().Format(imageTime), BootMode: "uefi-preferred",
		IMDSSupport: "v2.0", PlatformDetails: "Linux/UNIX", UsageOperation: "RunInstances", SourceInstance: i.Instance, SourceImage: i.Source, Tags: t.tags(i.ID),
	}
	if !item.Public {
		item.Location, item.Description = owner+"/"+i.Name, i.Description
	}
	if i.IMDSv1 {
		item.IMDSSupport = ""
	}
	d := imageDevice{Name: rootDevice}
	d.EBS.SnapshotID, d.EBS.Size, d.EBS.Type, d.EBS.DeleteOnTermination = i.snapshotID(), i.size(), cmp.Or(i.VolumeType, defaultVolType), !i.KeepsRoot
	if s := t.st.Snapshots[i.Snapshot]; s != nil {
		d.EBS.Encrypted = s.Encrypted
		if s.State == snapshotError {
			item.Reason = &stateReason{"Client.InternalError", "Client.InternalError: " + s.Message}
		}
	}
	item.BlockDevices = []imageDevice{d}
	return item
}

func ofImage(f func(imageItem) string) func(*tx, *Image) []string {
	return func(t *tx, i *Image) []string { return one(f(t.imageItem(i))) }
}

var imageFields = fields[Image]{
	"image-id":            ofImage(func(i imageItem) string { return i.ID }),
	"name":                ofImage(func(i imageItem) string { return i.Name }),
	"description":         ofImage(func(i imageItem) string { return i.Description }),
	"architecture":        ofImage(func(i imageItem) string { return i.Architecture }),
	"state":               ofImage(func(i imageItem) string { return i.State }),
	"owner-id":            ofImage(func(i imageItem) string { return i.OwnerID }),
	"is-public":           func(t *tx, i *Image) []string { return yesNo(t.imageItem(i).Public) },
	"ena-support":         func(*tx, *Image) []string { return yesNo(true) },
	"image-type":          ofImage(func(i imageItem) string { return i.Type }),
	"root-device-type":    ofImage(func(i imageItem) string { return i.RootDeviceType }),
	"root-device-name":    ofImage(func(i imageItem) string { return i.RootDeviceName }),
	"virtualization-type": ofImage(func(i imageItem) string { return i.VirtualizationType }),
	"hypervisor":          ofImage(func(i imageItem) string { return i.Hypervisor }),
	"creation-date":       ofImage(func(i imageItem) string { return i.CreationDate }),
	"source-instance-id":  ofImage(func(i imageItem) string { return i.SourceInstance }),
	"source-image-id":     ofImage(func(i imageItem) string { return i.SourceImage }),

	"block-device-mapping.snapshot-id": ofImage(func(i imageItem) string { return i.BlockDevices[0].EBS.SnapshotID }),
	"block-device-mapping.volume-size": ofImage(func(i imageItem) string { return port(i.BlockDevices[0].EBS.Size) }),
	"block-device-mapping.volume-type": ofImage(func(i imageItem) string { return i.BlockDevices[0].EBS.Type }),
	"block-device-mapping.encrypted":   func(t *tx, i *Image) []string { return yesNo(t.imageItem(i).BlockDevices[0].EBS.Encrypted) },
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
	owners := slices.Clone(in.Owners)
	for n, o := range owners {
		if !imageOwner.MatchString(o) {
			return nil, wire.Refuse("InvalidUserID.Malformed", `Invalid user id: "%s"`, o)
		}
		if o == "self" {
			owners[n] = t.c.cfg.AccountID
		}
	}
	shown := map[string]*Image{}
	for _, i := range slices.Concat(pointers(t.c.cfg.Images), sorted(t.st.Images)) {
		if t.allowed(i) && i.Deregistered.IsZero() && (len(in.ImageIds) == 0 || slices.Contains(in.ImageIds, i.ID)) && (len(owners) == 0 || slices.Contains(owners, cmp.Or(i.Owner, debianOwner))) {
			shown[i.ID] = i
		}
	}
	items, next, err := describe(t, selection[Image]{kindImage, shown, "imageId", nil, imageFields, in.describeRequest, 1}, t.imageItem)
	return describeImagesResponse{items, next}, err
}

func pointers[T any](all []T) []*T {
	var out []*T
	for n := range all {
		out = append(out, &all[n])
	}
	return out
}
