package ec2

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// launchTemplate is a launch template. Here nothing is launched from it: it is what clients ask about before they delete an image.
type launchTemplate struct {
	ID, Name string
	Versions []launchTemplateVersion // the first one has the number 1, and is the default
}

type launchTemplateVersion struct {
	Data    launchTemplateData
	Created time.Time
}

// launchTemplateData are the parameters of a launch that are kept.
type launchTemplateData struct {
	ImageId      string `xml:"imageId,omitempty"` //nolint:revive // EC2's own spelling
	InstanceType string `xml:"instanceType,omitempty"`
}

var launchTemplateActions = map[string]action{
	"CreateLaunchTemplate":           writes(createLaunchTemplate),
	"CreateLaunchTemplateVersion":    writes(createLaunchTemplateVersion),
	"DescribeLaunchTemplateVersions": reads(describeLaunchTemplateVersions),
	"DeleteLaunchTemplate":           writes(deleteLaunchTemplate),
}

const (
	latestVersion  = "$Latest"
	defaultVersion = "$Default"
)

var launchTemplateName = regexp.MustCompile(`^[a-zA-Z0-9().\-/_]{3,128}$`)

type launchTemplateRequest struct {
	request
	LaunchTemplateId   string //nolint:revive // EC2's own spelling
	LaunchTemplateName string
}

// launchTemplate returns the template that a request names by its id or its name.
func (t *tx) launchTemplate(in launchTemplateRequest) (*launchTemplate, error) {
	switch {
	case (in.LaunchTemplateId == "") == (in.LaunchTemplateName == ""):
		return nil, wire.Refuse("MissingParameter", "Either the launch template ID or the launch template name must be specified, and not both.")
	case in.LaunchTemplateId != "":
		return find(t, kindLaunchTemplate, t.st.LaunchTemplates, "launchTemplateId", in.LaunchTemplateId)
	}
	for _, l := range t.st.LaunchTemplates {
		if l.Name == in.LaunchTemplateName {
			return l, nil
		}
	}
	return nil, wire.Refuse("InvalidLaunchTemplateName.NotFoundException", "The specified launch template, with template name %s, does not exist.", in.LaunchTemplateName)
}

type createLaunchTemplateRequest struct {
	request
	ClientToken        string
	LaunchTemplateName string
	LaunchTemplateData launchTemplateData
	TagSpecifications  []tagSpecification `query:"TagSpecification"`
}

type createLaunchTemplateResponse struct {
	Template launchTemplateItem `xml:"launchTemplate"`
}

func createLaunchTemplate(t *tx, in *createLaunchTemplateRequest) (any, error) {
	ids, token, err := t.resultOf(in.ClientToken)
	if err != nil {
		return nil, err
	}
	if len(ids) > 0 {
		l, err := find(t, kindLaunchTemplate, t.st.LaunchTemplates, "launchTemplateId", ids[0])
		if err != nil {
			return nil, err
		}
		return createLaunchTemplateResponse{t.launchTemplateItem(l)}, nil
	}
	if !launchTemplateName.MatchString(in.LaunchTemplateName) {
		return nil, wire.Refuse("InvalidLaunchTemplateName.MalformedException", "A launch template name must be between 3 and 128 characters, and may contain letters, numbers, and the following characters: - ( ) . / _.")
	}
	if _, err := t.launchTemplate(launchTemplateRequest{LaunchTemplateName: in.LaunchTemplateName}); err == nil {
		return nil, wire.Refuse("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.")
	}
	if in.LaunchTemplateData == (launchTemplateData{}) {
		return nil, missing("LaunchTemplateData")
	}
	if err := checkSpecs(in.TagSpecifications, kindLaunchTemplate); err != nil {
		return nil, err
	}
	l := &launchTemplate{ID: t.newID(kindLaunchTemplate.prefix), Name: in.LaunchTemplateName, Versions: []launchTemplateVersion{{in.LaunchTemplateData, t.now}}}
	t.st.LaunchTemplates[l.ID] = l
	t.saveResult(token, l.ID)
	if err := t.applySpecs(in.TagSpecifications, kindLaunchTemplate, l.ID); err != nil {
		return nil, err
	}
	return createLaunchTemplateResponse{t.launchTemplateItem(l)}, nil
}

type launchTemplateItem struct {
	ID      string    `xml:"launchTemplateId"`
	Name    string    `xml:"launchTemplateName"`
	Created time.Time `xml:"createTime"`
	Default int       `xml:"defaultVersionNumber"`
	Latest  int       `xml:"latestVersionNumber"`
	Tags    []tag     `xml:"tagSet>item"`
}

func (t *tx) launchTemplateItem(l *launchTemplate) launchTemplateItem {
	return launchTemplateItem{l.ID, l.Name, l.Versions[0].Created, 1, len(l.Versions), t.tags(l.ID)}
}

type createLaunchTemplateVersionRequest struct {
	launchTemplateRequest
	ClientToken        string
	LaunchTemplateData launchTemplateData
}

func createLaunchTemplateVersion(t *tx, in *createLaunchTemplateVersionRequest) (any, error) {
	made, token, err := t.resultOf(in.ClientToken) // the number of the version
	if err != nil {
		return nil, err
	}
	l, err := t.launchTemplate(in.launchTemplateRequest)
	if err != nil {
		return nil, err
	}
	number := len(l.Versions) + 1
	if len(made) > 0 {
		number, _ = strconv.Atoi(made[0])
	} else {
		l.Versions = append(l.Versions, launchTemplateVersion{in.LaunchTemplateData, t.now})
	}
	t.saveResult(token, strconv.Itoa(number))
	return struct {
		Version launchTemplateVersionItem `xml:"launchTemplateVersion"`
	}{l.item(number)}, nil
}

type launchTemplateVersionItem struct {
	ID      string             `xml:"launchTemplateId"`
	Name    string             `xml:"launchTemplateName"`
	Number  int                `xml:"versionNumber"`
	Default bool               `xml:"defaultVersion"`
	Created time.Time          `xml:"createTime"`
	Data    launchTemplateData `xml:"launchTemplateData"`
}

func (l *launchTemplate) item(number int) launchTemplateVersionItem {
	v := l.Versions[number-1]
	return launchTemplateVersionItem{l.ID, l.Name, number, number == 1, v.Created, v.Data}
}

var launchTemplateVersionFields = fields[launchTemplateVersionItem]{
	"image-id":           func(_ *tx, v *launchTemplateVersionItem) []string { return one(v.Data.ImageId) },
	"instance-type":      func(_ *tx, v *launchTemplateVersionItem) []string { return one(v.Data.InstanceType) },
	"is-default-version": func(_ *tx, v *launchTemplateVersionItem) []string { return yesNo(v.Default) },
}

type describeLaunchTemplateVersionsRequest struct {
	launchTemplateRequest
	Versions   []string `query:"LaunchTemplateVersion"`
	Filters    []filter `query:"Filter"`
	MaxResults *int
	NextToken  string
}

// describeLaunchTemplateVersions lists versions of one template, or the latest and default versions of all.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeLaunchTemplateVersions.html
func describeLaunchTemplateVersions(t *tx, in *describeLaunchTemplateVersionsRequest) (any, error) {
	templates := sorted(t.st.LaunchTemplates)
	if in.LaunchTemplateId == "" && in.LaunchTemplateName == "" {
		if len(in.Versions) == 0 || slices.ContainsFunc(in.Versions, func(v string) bool { return v != latestVersion && v != defaultVersion }) {
			return nil, wire.Refuse("InvalidParameterCombination", "Without a launch template, the versions must be $Latest, $Default, or both.")
		}
	} else {
		l, err := t.launchTemplate(in.launchTemplateRequest)
		if err != nil {
			return nil, err
		}
		templates = []*launchTemplate{l}
		for _, v := range in.Versions {
			if n, err := strconv.Atoi(v); v != latestVersion && v != defaultVersion && (err != nil || n < 1 || n > len(l.Versions)) {
				return nil, wire.Refuse("InvalidLaunchTemplateId.VersionNotFound", "Could not find the specified version %s for the launch template with ID %s.", v, l.ID)
			}
		}
	}
	found := map[string]*launchTemplateVersionItem{} // by id and number
	for _, l := range templates {
		for n := 1; n <= len(l.Versions); n++ {
			names := []string{strconv.Itoa(n)}
			if n == 1 {
				names = append(names, defaultVersion)
			}
			if n == len(l.Versions) {
				names = append(names, latestVersion)
			}
			if len(in.Versions) == 0 || slices.ContainsFunc(names, func(name string) bool { return slices.Contains(in.Versions, name) }) {
				item := l.item(n)
				found[fmt.Sprintf("%s %09d", l.ID, n)] = &item
			}
		}
	}
	s := selection[launchTemplateVersionItem]{kindLaunchTemplate, found, "", nil, launchTemplateVersionFields, describeRequest{in.request, in.Filters, in.MaxResults, in.NextToken}, 1}
	items, next, err := describe(t, s, func(v *launchTemplateVersionItem) launchTemplateVersionItem { return *v })
	return struct {
		Versions  []launchTemplateVersionItem `xml:"launchTemplateVersionSet>item"`
		NextToken string                      `xml:"nextToken,omitempty"`
	}{items, next}, err
}

func deleteLaunchTemplate(t *tx, in *launchTemplateRequest) (any, error) {
	l, err := t.launchTemplate(*in)
	if err != nil {
		return nil, err
	}
	item := t.launchTemplateItem(l)
	t.drop(l.ID)
	delete(t.st.LaunchTemplates, l.ID)
	return struct {
		Template launchTemplateItem `xml:"launchTemplate"`
	}{item}, nil
}
