package ec2

import (
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

var profileActions = map[string]action{
	"AssociateIamInstanceProfile":            writes(associateProfile),
	"DescribeIamInstanceProfileAssociations": reads(describeProfileAssociations),
	"DisassociateIamInstanceProfile":         writes(disassociateProfile),
	"ReplaceIamInstanceProfileAssociation":   writes(replaceProfile),
}

// Profile is an instance profile, as EC2 shows it.
type Profile struct {
	ARN string `xml:"arn"`
	ID  string `xml:"id"`
}

func (p Profile) name() string { return p.ARN[strings.LastIndex(p.ARN, "/")+1:] }

// profileAssociation is a profile on an instance. An instance has one that lasts, and for a moment
// also those that have just ended.
type profileAssociation struct {
	ID, Instance string
	Profile      Profile
	Since        time.Time
	Ended        time.Time // zero while it lasts
}

var kindProfileAssociation = kind{"iip-assoc", "InvalidAssociationID.NotFound", "", "An invalid association-id of '%s' was given", ""}

// associatingFor is how long a profile is being associated or disassociated. On AWS it is seconds.
const associatingFor = 500 * time.Millisecond

// state returns the state of an association, empty if nothing of it is left.
func (a *profileAssociation) state(now time.Time) string {
	switch {
	case !a.Ended.IsZero() && now.Sub(a.Ended) >= associatingFor:
		return ""
	case !a.Ended.IsZero():
		return "disassociating"
	case now.Sub(a.Since) < associatingFor:
		return "associating"
	}
	return "associated"
}

// profileOf returns an instance's association: the one that lasts, else one that is ending; nil if
// there is none.
func (t *tx) profileOf(instance string) *profileAssociation {
	var found *profileAssociation
	for _, a := range sorted(t.st.Profiles) {
		if a.Instance == instance && a.state(t.now) != "" && (found == nil || a.Ended.IsZero()) {
			found = a
		}
	}
	return found
}

type profileSpec struct{ Arn, Name string }

// profile returns the profile that a request names.
func (t *tx) profile(s *profileSpec) (Profile, error) {
	var none Profile
	switch {
	case s == nil || *s == profileSpec{}:
		return none, missing("IamInstanceProfile")
	case s.Arn != "" && s.Name != "":
		return none, wire.Refuse("InvalidParameterCombination", "The parameter 'iamInstanceProfile.name' may not be used in combination with 'iamInstanceProfile.arn'")
	case s.Arn != "" && !strings.HasPrefix(s.Arn, "arn:"):
		return none, invalidValue("Value (%s) for parameter iamInstanceProfile.arn is invalid. Invalid IAM Instance Profile ARN", s.Arn)
	case s.Arn != "":
		if p, ok := t.c.cfg.Profile(s.Arn); ok {
			return p, nil
		}
		return none, invalidValue("Value (%s) for parameter iamInstanceProfile.arn is invalid. Invalid IAM Instance Profile ARN", s.Arn)
	case !strings.HasPrefix(s.Name, "arn:"):
		if p, ok := t.c.cfg.Profile(s.Name); ok {
			return p, nil
		}
	}
	return none, invalidValue("Value (%s) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", s.Name)
}

// associate gives an instance a profile.
func (t *tx) associate(instance string, p Profile) *profileAssociation {
	a := &profileAssociation{ID: t.newID(kindProfileAssociation.prefix), Instance: instance, Profile: p, Since: t.now}
	t.st.Profiles[a.ID] = a
	return a
}

type profileItem struct {
	ID         string     `xml:"associationId"`
	InstanceID string     `xml:"instanceId"`
	Profile    Profile    `xml:"iamInstanceProfile"`
	State      string     `xml:"state"`
	Timestamp  *time.Time `xml:"timestamp,omitempty"`
}

type profileResponse struct {
	Association profileItem `xml:"iamInstanceProfileAssociation"`
}

func (t *tx) profileItem(a *profileAssociation) profileItem {
	return profileItem{ID: a.ID, InstanceID: a.Instance, Profile: a.Profile, State: a.state(t.now)}
}

type associateProfileRequest struct {
	request
	InstanceId         string
	IamInstanceProfile *profileSpec
}

func associateProfile(t *tx, in *associateProfileRequest) (any, error) {
	i, err := find(t, kindInstance, t.st.Instances, "instanceId", in.InstanceId)
	if err != nil {
		return nil, err
	}
	if i.State != stateRunning && i.State != stateStopped {
		return nil, wire.Refuse("IncorrectInstanceState", "The instance '%s' is not in the 'running' or 'stopped' states.", i.ID)
	}
	p, err := t.profile(in.IamInstanceProfile)
	if err != nil {
		return nil, err
	}
	if t.profileOf(i.ID) != nil {
		return nil, wire.Refuse("IncorrectState", "There is an existing association for instance %s", i.ID)
	}
	return profileResponse{t.profileItem(t.associate(i.ID, p))}, nil
}

// lasting returns the association with an id, which must last.
func (t *tx) lasting(id string) (*profileAssociation, error) {
	a, err := find(t, kindProfileAssociation, t.associations(), "associationId", id)
	if err == nil && !a.Ended.IsZero() {
		err = notActive(id)
	}
	return a, err
}

func notActive(id string) error {
	return wire.Refuse("IncorrectState", "The association %s is not the active association", id)
}

type replaceProfileRequest struct {
	request
	AssociationId      string
	IamInstanceProfile *profileSpec
}

// replaceProfile replaces the profile of a running instance. EC2 refuses to do so for a stopped one:
// https://github.com/aws/aws-cli/issues/5251
func replaceProfile(t *tx, in *replaceProfileRequest) (any, error) {
	a, err := t.lasting(in.AssociationId)
	if err != nil {
		return nil, err
	}
	if i := t.st.Instances[a.Instance]; i.State != stateRunning {
		return nil, notActive(a.ID)
	}
	p, err := t.profile(in.IamInstanceProfile)
	if err != nil {
		return nil, err
	}
	a.Ended = t.now
	return profileResponse{t.profileItem(t.associate(a.Instance, p))}, nil
}

type disassociateProfileRequest struct {
	request
	AssociationId string
}

func disassociateProfile(t *tx, in *disassociateProfileRequest) (any, error) {
	a, err := t.lasting(in.AssociationId)
	if err != nil {
		return nil, err
	}
	a.Ended = t.now
	return profileResponse{t.profileItem(a)}, nil
}

// associations returns those of which something is left.
func (t *tx) associations() map[string]*profileAssociation {
	out := map[string]*profileAssociation{}
	for id, a := range t.st.Profiles {
		if a.state(t.now) != "" {
			out[id] = a
		}
	}
	return out
}

type describeProfileAssociationsRequest struct {
	describeRequest
	AssociationIds []string `query:"AssociationId"`
}

type describeProfileAssociationsResponse struct {
	Associations []profileItem `xml:"iamInstanceProfileAssociationSet>item"`
	NextToken    string        `xml:"nextToken,omitempty"`
}

var profileFields = fields[profileAssociation]{
	"instance-id": func(_ *tx, a *profileAssociation) []string { return one(a.Instance) },
	"state":       func(t *tx, a *profileAssociation) []string { return one(a.state(t.now)) },
}

func describeProfileAssociations(t *tx, in *describeProfileAssociationsRequest) (any, error) {
	items, next, err := describe(t, selection[profileAssociation]{
		kindProfileAssociation, t.associations(), "associationId", in.AssociationIds, profileFields, in.describeRequest, 5,
	}, func(a *profileAssociation) profileItem {
		item := t.profileItem(a)
		item.Timestamp = &a.Since
		return item
	})
	return describeProfileAssociationsResponse{items, next}, err
}
