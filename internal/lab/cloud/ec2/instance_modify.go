package ec2

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

type modifyInstanceRequest struct {
	request
	InstanceId string
	// Attribute and Value are the older way to name one attribute.
	Attribute string
	Value     *string

	InstanceType                      *stringAttribute
	UserData                          *struct{ Value []byte }
	InstanceInitiatedShutdownBehavior *stringAttribute
	DisableApiTermination             *boolAttribute
	DisableApiStop                    *boolAttribute
	SourceDestCheck                   *boolAttribute
	EbsOptimized                      *boolAttribute
	GroupIds                          []string `query:"GroupId"`
	BlockDeviceMappings               []struct {
		DeviceName string
		Ebs        struct {
			DeleteOnTermination *bool
			VolumeId            string
		}
	} `query:"BlockDeviceMapping"`
}

// normalize turns Attribute and Value into the field they stand for.
func (in *modifyInstanceRequest) normalize() error {
	if in.Attribute == "" {
		return nil
	}
	if in.Value == nil {
		return missing("value")
	}
	b, err := strconv.ParseBool(*in.Value)
	switch in.Attribute {
	case "instanceType":
		in.InstanceType, err = &stringAttribute{*in.Value}, nil
	case "instanceInitiatedShutdownBehavior":
		in.InstanceInitiatedShutdownBehavior, err = &stringAttribute{*in.Value}, nil
	case "userData":
		var raw []byte
		raw, err = base64.StdEncoding.DecodeString(*in.Value)
		in.UserData = &struct{ Value []byte }{raw}
	case "disableApiTermination":
		in.DisableApiTermination = &boolAttribute{b}
	case "disableApiStop":
		in.DisableApiStop = &boolAttribute{b}
	case "sourceDestCheck":
		in.SourceDestCheck = &boolAttribute{b}
	case "ebsOptimized":
		in.EbsOptimized = &boolAttribute{b}
	default:
		return invalidValue("Value (%s) for parameter attribute is invalid. Unknown attribute.", in.Attribute)
	}
	if err != nil {
		return invalidValue("Value (%s) for parameter value is invalid.", *in.Value)
	}
	return nil
}

// named returns the attributes that the request changes.
func (in *modifyInstanceRequest) named() []string {
	var out []string
	for _, a := range []struct {
		name  string
		given bool
	}{
		{"instanceType", in.InstanceType != nil},
		{"userData", in.UserData != nil},
		{"instanceInitiatedShutdownBehavior", in.InstanceInitiatedShutdownBehavior != nil},
		{"disableApiTermination", in.DisableApiTermination != nil},
		{"disableApiStop", in.DisableApiStop != nil},
		{"sourceDestCheck", in.SourceDestCheck != nil},
		{"ebsOptimized", in.EbsOptimized != nil},
		{"groups", len(in.GroupIds) > 0},
		{"blockDeviceMapping", len(in.BlockDeviceMappings) > 0},
	} {
		if a.given {
			out = append(out, a.name)
		}
	}
	return out
}

func modifyInstanceAttribute(t *tx, in *modifyInstanceRequest) (any, error) {
	i, err := find(t, kindInstance, t.st.Instances, "instanceId", in.InstanceId)
	if err != nil {
		return nil, err
	}
	if err := in.normalize(); err != nil {
		return nil, err
	}
	attributes := in.named()
	switch {
	case len(attributes) == 0:
		return nil, wire.Refuse("InvalidParameterCombination", "No attributes specified.")
	case len(attributes) > 1:
		return nil, wire.Refuse("InvalidParameterCombination", "Fields for multiple attribute types specified: %s", strings.Join(attributes, ", "))
	case i.gone():
		return nil, wire.Refuse("IncorrectInstanceState", "The instance '%s' is not in a state from which it can be modified.", i.ID)
	}
	if slices.Contains([]string{"instanceType", "userData", "ebsOptimized"}, attributes[0]) && i.State != stateStopped {
		return nil, wire.Refuse("IncorrectInstanceState", "The instance '%s' is not in the 'stopped' state.", i.ID)
	}
	return done{true}, t.modifyInstance(i, in, attributes[0])
}

func (t *tx) modifyInstance(i *instance, in *modifyInstanceRequest, attribute string) error {
	e := t.st.Interfaces[i.Interface]
	switch attribute {
	case "instanceType":
		// The instance outlives its image, whose architecture it has.
		if err := checkInstanceType(in.InstanceType.Value, instanceTypes[i.Type].arm); err != nil {
			return err
		}
		i.Type = in.InstanceType.Value
	case "userData":
		encoded := base64.StdEncoding.EncodeToString(in.UserData.Value)
		if err := checkUserData(encoded); err != nil {
			return err
		}
		i.UserData = encoded
	case "instanceInitiatedShutdownBehavior":
		if err := checkShutdownBehavior(in.InstanceInitiatedShutdownBehavior.Value); err != nil {
			return err
		}
		i.Shutdown = in.InstanceInitiatedShutdownBehavior.Value
	case "disableApiTermination":
		if i.Spot != nil {
			return spotUnsupported(attribute)
		}
		i.DisableTermination = in.DisableApiTermination.Value
	case "disableApiStop":
		if i.Spot != nil {
			return spotUnsupported(attribute)
		}
		i.DisableStop = in.DisableApiStop.Value
	case "sourceDestCheck":
		e.SourceDestCheck = in.SourceDestCheck.Value
	case "ebsOptimized":
		i.EBSOptimized = in.EbsOptimized.Value
	case "groups":
		if err := t.checkGroups(kindGroup, i.VPC, "", in.GroupIds); err != nil {
			return err
		}
		e.Groups = in.GroupIds
	case "blockDeviceMapping":
		volumes := t.attachedTo(i)
		for _, m := range in.BlockDeviceMappings {
			at := slices.IndexFunc(volumes, func(v *volume) bool { return v.Device == m.DeviceName })
			if at < 0 {
				return wire.Refuse("InvalidInstanceAttributeValue", "No device is currently mapped at %s", m.DeviceName)
			}
			if b := m.Ebs.DeleteOnTermination; b != nil {
				volumes[at].DeleteOnTermination = *b
			}
		}
	}
	return nil
}

type modifyMetadataRequest struct {
	request
	InstanceId string
	metadataOptionsRequest
}

func modifyMetadataOptions(t *tx, in *modifyMetadataRequest) (any, error) {
	i, err := find(t, kindInstance, t.st.Instances, "instanceId", in.InstanceId)
	if err != nil {
		return nil, err
	}
	if i.gone() {
		return nil, wire.Refuse("IncorrectInstanceState", "The instance '%s' is not in a state from which it can be modified.", i.ID)
	}
	if err := i.Metadata.change(in.metadataOptionsRequest); err != nil {
		return nil, err
	}
	if err := t.checkMetadataTags(i); err != nil {
		return nil, err
	}
	return struct {
		ID      string       `xml:"instanceId"`
		Options metadataItem `xml:"instanceMetadataOptions"`
	}{i.ID, i.Metadata.item()}, nil
}
