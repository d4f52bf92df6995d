package ec2

import (
	"cmp"
	"regexp"
	"slices"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// The images that the account makes, of instances and of snapshots. An image is its snapshot: it is pending as long
// as that is, and fails with it.

var imageCreateActions = map[string]action{
	"CreateImage":     writes(createImage),
	"RegisterImage":   writes(registerImage),
	"DeregisterImage": writes(deregisterImage),
}

// The states of an image that are seen here.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_Image.html
const (
	imagePending   = "pending"
	imageAvailable = "available"
	imageFailed    = "failed"
)

// deregisteredKnown is how long EC2 says of a deregistered image that it is no longer available. Afterwards there is
// none. EC2 does not say how long that is.
const deregisteredKnown = time.Hour

// imageName matches the names that images may have.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateImage.html
var imageName = regexp.MustCompile(`^[a-zA-Z0-9()\[\] ./\-'@_]{3,128}$`)

// imageState returns an image's state.
func (t *tx) imageState(i *Image) string {
	if i.Snapshot == "" { // it is published
		return imageAvailable
	}
	switch s := t.st.Snapshots[i.Snapshot]; {
	case s == nil || s.State == snapshotError:
		return imageFailed
	case s.State == snapshotPending:
		return imagePending
	}
	return imageAvailable
}

type createImageRequest struct {
	request
	InstanceId          string
	Name                string
	Description         string
	NoReboot            bool
	SnapshotLocation    string
	BlockDeviceMappings []blockDeviceMapping `query:"BlockDeviceMapping"`
	TagSpecifications   []tagSpecification   `query:"TagSpecification"`
}

type imageIDResponse struct {
	ID string `xml:"imageId"`
}

// createImage answers before the instance reboots for the snapshot, as EC2 does. There is no client token: who does
// not get the answer finds the image by its name.
func createImage(t *tx, in *createImageRequest) (any, error) {
	i, err := find(t, kindInstance, t.st.Instances, "instanceId", in.InstanceId)
	if err != nil {
		return nil, err
	}
	if i.State != stateRunning && i.State != stateStopped {
		return nil, invalidValue("Invalid value '%s' for instanceId. Instance is not in state 'running' or 'stopped'", i.ID)
	}
	if in.SnapshotLocation != "" && in.SnapshotLocation != "regional" {
		return nil, wire.Refuse("UnsupportedOperation", "The local EC2 has snapshots in the region only.")
	}
	if err := checkSpecs(in.TagSpecifications, kindImage, kindSnapshot); err != nil {
		return nil, err
	}
	image := &Image{Name: in.Name, Description: in.Description, Instance: i.ID, Source: i.Image, ARM: instanceTypes[i.Type].arm}
	if from := t.image(i.Image); from != nil {
		image.IMDSv1 = from.IMDSv1
	}
	if err := t.mapDevices(image, i, in.BlockDeviceMappings); err != nil {
		return nil, err
	}
	if err := t.newImage(image, in.TagSpecifications); err != nil {
		return nil, err
	}
	reboot := i.State == stateRunning && !in.NoReboot
	s, err := t.newSnapshot(t.st.Volumes[i.RootVolume], "Created by CreateImage("+i.ID+") for "+image.ID, reboot, in.TagSpecifications)
	if err != nil {
		return nil, err
	}
	image.Snapshot, image.SizeGiB = s.ID, s.SizeGiB
	if reboot {
		i.powerOn()
	}
	return imageIDResponse{image.ID}, nil
}

// mapDevices gives an image of an instance its volumes. Whether a root volume outlives its instance is all that a
// request can change.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateImage.html
func (t *tx) mapDevices(image *Image, i *instance, mappings []blockDeviceMapping) error {
	root := t.st.Volumes[i.RootVolume]
	image.VolumeType, image.KeepsRoot = root.Type, !root.DeleteOnTermination
	left := map[string]bool{}
	for _, m := range mappings {
		switch {
		case m.NoDevice != nil:
			left[m.DeviceName] = true
		case m.DeviceName != root.Device:
			return wire.Refuse("UnsupportedOperation", "The local EC2 has images of root volumes only.")
		case m.Ebs.Encrypted || m.Ebs.KmsKeyId != "" || m.Ebs.SnapshotId != "" || m.Ebs.VolumeSize != 0 && m.Ebs.VolumeSize != root.SizeGiB:
			return wire.Refuse("InvalidBlockDeviceMapping", "The size, snapshot and encryption of the device '%s' are those of its volume", m.DeviceName)
		case m.Ebs.DeleteOnTermination != nil:
			image.KeepsRoot = !*m.Ebs.DeleteOnTermination
		}
	}
	if left[root.Device] {
		return wire.Refuse("InvalidBlockDeviceMapping", "The root device %s cannot be left out", root.Device)
	}
	for _, v := range t.attachedTo(i) {
		if v != root && !left[v.Device] {
			return wire.Refuse("UnsupportedOperation", "The local EC2 has images of root volumes only: leave out the device %s (NoDevice).", v.Device)
		}
	}
	return nil
}

// newImage adds an image of the account, if its name is free and the quota allows it.
func (t *tx) newImage(i *Image, specs []tagSpecification) error {
	if i.Name == "" {
		return missing("name")
	}
	if !imageName.MatchString(i.Name) {
		return wire.Refuse("InvalidAMIName.Malformed", "AMI names must be between 3 and 128 characters long, and may contain letters, numbers, '(', ')', '.', '-', '/' and '_'")
	}
	own := 0
	for _, other := range slices.Concat(pointers(t.c.cfg.Images), sorted(t.st.Images)) {
		if other.Owner != t.c.cfg.AccountID || !other.Deregistered.IsZero() {
			continue
		}
		if own++; other.Name == i.Name {
			return wire.Refuse("InvalidAMIName.Duplicate", "AMI name %s is already in use by AMI %s", i.Name, other.ID)
		}
	}
	if limit := t.c.cfg.Quotas.Images; own >= limit { // EC2's list of codes has none of its own for it
		return wire.Refuse("ResourceLimitExceeded", "You have reached your quota of %d AMIs in this region", limit)
	}
	i.ID, i.Owner, i.Created = t.newID(kindImage.prefix), t.c.cfg.AccountID, t.now
	t.st.Images[i.ID] = i
	return t.applySpecs(specs, kindImage, i.ID)
}

type registerImageRequest struct {
	request
	Name                string
	Description         string
	Architecture        string
	VirtualizationType  string
	RootDeviceName      string
	BootMode            string
	ImdsSupport         string
	SriovNetSupport     string
	EnaSupport          bool
	BlockDeviceMappings []blockDeviceMapping `query:"BlockDeviceMapping"`
	TagSpecifications   []tagSpecification   `query:"TagSpecification"`
}

// registerImage makes an image of a snapshot of a root volume. What EC2 assumes by default, 32 bit and paravirtual,
// no current instance type runs.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_RegisterImage.html
func registerImage(t *tx, in *registerImageRequest) (any, error) {
	arch, virtualization := cmp.Or(in.Architecture, "i386"), cmp.Or(in.VirtualizationType, "paravirtual")
	switch {
	case arch != architecture(false) && arch != architecture(true):
		return nil, wire.Refuse("UnsupportedOperation", "The local EC2 has no images of the architecture %s.", arch)
	case virtualization != "hvm":
		return nil, wire.Refuse("UnsupportedOperation", "The local EC2 has no images of the virtualization type %s.", virtualization)
	case !slices.Contains([]string{"", "legacy-bios", "uefi", "uefi-preferred"}, in.BootMode):
		return nil, invalidValue("Value (%s) for parameter bootMode is invalid.", in.BootMode)
	case in.ImdsSupport != "" && in.ImdsSupport != "v2.0":
		return nil, invalidValue("Value (%s) for parameter imdsSupport is invalid.", in.ImdsSupport)
	case in.RootDeviceName == "":
		return nil, missing("rootDeviceName")
	case len(in.BlockDeviceMappings) != 1 || in.RootDeviceName != rootDevice:
		return nil, wire.Refuse("UnsupportedOperation", "The local EC2 has images of one volume, whose device is %s.", rootDevice)
	}
	m := in.BlockDeviceMappings[0]
	if m.DeviceName != in.RootDeviceName || m.Ebs.SnapshotId == "" {
		return nil, wire.Refuse("InvalidBlockDeviceMapping", "There is no snapshot for the root device %s", in.RootDeviceName)
	}
	s, err := t.findSnapshot(m.Ebs.SnapshotId)
	switch {
	case err != nil:
		return nil, err
	case s.State != snapshotCompleted:
		return nil, wire.Refuse("IncorrectState", "Snapshot is in invalid state - %s", s.State)
	case s.Instance == "":
		return nil, wire.Refuse("UnsupportedOperation", "The local EC2 makes images of snapshots of root volumes, and of no others.")
	case m.Ebs.Encrypted:
		return nil, wire.Refuse("InvalidBlockDeviceMapping", "The encryption of the device '%s' is that of its snapshot", m.DeviceName)
	case m.Ebs.VolumeSize != 0 && m.Ebs.VolumeSize < s.SizeGiB:
		return nil, wire.Refuse("InvalidBlockDeviceMapping", "Volume of size %dGB is smaller than snapshot '%s', expect size >= %dGB", m.Ebs.VolumeSize, s.ID, s.SizeGiB)
	}
	if err := checkSpecs(in.TagSpecifications, kindImage); err != nil {
		return nil, err
	}
	image := &Image{
		Name: in.Name, Description: in.Description, ARM: arch == architecture(true), Snapshot: s.ID, SizeGiB: cmp.Or(m.Ebs.VolumeSize, s.SizeGiB), VolumeType: m.Ebs.VolumeType,
		KeepsRoot: m.Ebs.DeleteOnTermination != nil && !*m.Ebs.DeleteOnTermination, IMDSv1: in.ImdsSupport == "",
	}
	if err := t.newImage(image, in.TagSpecifications); err != nil {
		return nil, err
	}
	return imageIDResponse{image.ID}, nil
}

type deregisterImageRequest struct {
	request
	ImageId                   string
	DeleteAssociatedSnapshots bool
}

// deletedSnapshot is what became of a deregistered image's snapshot.
type deletedSnapshot struct {
	ID   string `xml:"snapshotId"`
	Code string `xml:"returnCode"`
}

type deregisterImageResponse struct {
	done
	Snapshots []deletedSnapshot `xml:"deleteSnapshotResultSet>item"`
}

// deregisterImage does not ask who uses the image: instances and launch templates do not hold it. Its snapshot stays,
// unless the request says otherwise, the caller may delete it, and no other image has it.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DeregisterImage.html
func deregisterImage(t *tx, in *deregisterImageRequest) (any, error) {
	i, err := t.findImage(in.ImageId)
	switch {
	case err != nil:
		return nil, err
	case i.Owner != t.c.cfg.AccountID:
		return nil, wire.Refuse("AuthFailure", "Not authorized for image:%s", i.ID)
	case i.Snapshot == "":
		return nil, wire.Refuse("UnsupportedOperation", "The local EC2 does not deregister what k8s-lab has published.")
	}
	i.Deregistered = t.now
	t.drop(i.ID)
	out := deregisterImageResponse{done: done{true}}
	if in.DeleteAssociatedSnapshots {
		code := "success"
		switch {
		case t.userOfSnapshot(i.Snapshot) != "":
			code = "skipped"
		case !t.may("DeleteSnapshot", "SnapshotId", t.c.resource(i.Snapshot)):
			code = "missing-permissions"
		default:
			t.deleteSnapshot(i.Snapshot)
		}
		out.Snapshots = []deletedSnapshot{{i.Snapshot, code}}
	}
	return out, nil
}
