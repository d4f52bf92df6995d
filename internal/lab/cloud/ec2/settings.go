package ec2

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// settings are the account's own for the region. They decide what requests leave open, and hide what they forbid.
type settings struct {
	// Metadata are the options of the metadata service for instances whose launch does not say them; empty or -1
	// stands for no preference.
	Metadata metadataOptions
	// Encrypt encrypts new volumes, and Key is the key for EBS; empty means the one that AWS manages.
	Encrypt bool
	Key     string
	// BlockPublicAccess is the mode of VPC Block Public Access.
	BlockPublicAccess string
	// Images says whether only images of ImageOwners can be found and used.
	Images      string
	ImageOwners []string
}

// The values of settings.
const (
	noPreference       = "no-preference"
	blockOff           = "off"
	blockBidirectional = "block-bidirectional"
	blockIngress       = "block-ingress"
	imagesDisabled     = "disabled"
	imagesEnabled      = "enabled"
	imagesAudit        = "audit-mode"
)

func newSettings() settings {
	return settings{Metadata: metadataOptions{HopLimit: -1}, BlockPublicAccess: blockOff, Images: imagesDisabled}
}

var settingsActions = map[string]action{
	"GetInstanceMetadataDefaults":                 reads(getMetadataDefaults),
	"ModifyInstanceMetadataDefaults":              writes(modifyMetadataDefaults),
	"GetEbsEncryptionByDefault":                   reads(func(t *tx, _ *request) (any, error) { return encryptionResponse{t.st.Settings.Encrypt}, nil }),
	"EnableEbsEncryptionByDefault":                writes(func(t *tx, _ *request) (any, error) { return t.encryptByDefault(true) }),
	"DisableEbsEncryptionByDefault":               writes(func(t *tx, _ *request) (any, error) { return t.encryptByDefault(false) }),
	"GetEbsDefaultKmsKeyId":                       reads(func(t *tx, _ *request) (any, error) { return t.defaultKeyResponse() }),
	"ModifyEbsDefaultKmsKeyId":                    writes(modifyDefaultKey),
	"ResetEbsDefaultKmsKeyId":                     writes(func(t *tx, _ *request) (any, error) { t.st.Settings.Key = ""; return t.defaultKeyResponse() }),
	"DescribeVpcBlockPublicAccessOptions":         reads(func(t *tx, _ *request) (any, error) { return t.blockPublicAccess() }),
	"ModifyVpcBlockPublicAccessOptions":           writes(modifyBlockPublicAccess),
	"GetAllowedImagesSettings":                    reads(getAllowedImages),
	"EnableAllowedImagesSettings":                 writes(enableAllowedImages),
	"DisableAllowedImagesSettings":                writes(disableAllowedImages),
	"ReplaceImageCriteriaInAllowedImagesSettings": writes(replaceImageCriteria),
}

type metadataDefaultsItem struct {
	Tokens    string `xml:"httpTokens,omitempty"`
	HopLimit  *int   `xml:"httpPutResponseHopLimit,omitempty"`
	Endpoint  string `xml:"httpEndpoint,omitempty"`
	Tags      string `xml:"instanceMetadataTags,omitempty"`
	ManagedBy string `xml:"managedBy"`
}

func getMetadataDefaults(t *tx, _ *request) (any, error) {
	m := t.st.Settings.Metadata
	item := metadataDefaultsItem{Tokens: m.Tokens, Endpoint: m.Endpoint, Tags: m.Tags, ManagedBy: "account"}
	if m.HopLimit > 0 {
		item.HopLimit = &m.HopLimit
	}
	return struct {
		AccountLevel metadataDefaultsItem `xml:"accountLevel"`
	}{item}, nil
}

type metadataDefaultsRequest struct {
	request
	HttpTokens              string
	HttpPutResponseHopLimit *int
	HttpEndpoint            string
	InstanceMetadataTags    string
}

func modifyMetadataDefaults(t *tx, in *metadataDefaultsRequest) (any, error) {
	m := &t.st.Settings.Metadata
	change := metadataOptionsRequest{HttpTokens: in.HttpTokens, HttpEndpoint: in.HttpEndpoint, InstanceMetadataTags: in.InstanceMetadataTags}
	for _, o := range []struct{ asked, kept *string }{
		{&change.HttpTokens, &m.Tokens}, {&change.HttpEndpoint, &m.Endpoint}, {&change.InstanceMetadataTags, &m.Tags},
	} {
		if *o.asked == noPreference {
			*o.asked, *o.kept = "", ""
		}
	}
	if n := in.HttpPutResponseHopLimit; n != nil && *n == -1 {
		m.HopLimit = -1
	} else {
		change.HttpPutResponseHopLimit = n
	}
	if err := m.change(change); err != nil {
		return nil, err
	}
	return done{true}, nil
}

// preferred sets the options that the account has a preference for.
func (m *metadataOptions) preferred(by metadataOptions) {
	for _, o := range []struct {
		to   *string
		want string
	}{{&m.Tokens, by.Tokens}, {&m.Endpoint, by.Endpoint}, {&m.Tags, by.Tags}} {
		if o.want != "" {
			*o.to = o.want
		}
	}
	if by.HopLimit > 0 {
		m.HopLimit = by.HopLimit
	}
}

// metadataTagKey matches the keys of tags that the metadata service can show. It has a path for each.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/work-with-tags-in-IMDS.html
var metadataTagKey = regexp.MustCompile(`^[0-9a-zA-Z\-_+=,.@:]{1,255}$`)

// checkMetadataTags refuses tags that the metadata service cannot show, of an instance whose tags it shows.
func (t *tx) checkMetadataTags(i *instance) error {
	if i == nil || i.Metadata.Tags != "enabled" {
		return nil
	}
	for _, g := range t.tags(i.ID) {
		if !metadataTagKey.MatchString(g.Key) || slices.Contains([]string{".", "..", "_index"}, g.Key) {
			return invalidValue(`'%s' is not a valid tag key. Tag keys must match pattern ([0-9a-zA-Z\\-_+=,.@:]{1,255}), and must not be a reserved name ('.', '..', '_index')`, g.Key)
		}
	}
	return nil
}

type encryptionResponse struct {
	Encrypts bool `xml:"ebsEncryptionByDefault"`
}

func (t *tx) encryptByDefault(on bool) (any, error) {
	t.st.Settings.Encrypt = on
	return encryptionResponse{on}, nil
}

type defaultKeyRequest struct {
	request
	KmsKeyId string
}

func modifyDefaultKey(t *tx, in *defaultKeyRequest) (any, error) {
	if in.KmsKeyId == "" {
		return nil, missing("KmsKeyId")
	}
	t.st.Settings.Key = in.KmsKeyId
	return t.defaultKeyResponse()
}

func (t *tx) defaultKeyResponse() (any, error) {
	key := defaultKey
	if t.st.Settings.Key != "" {
		key = t.c.keyARN(t.st.Settings.Key)
	}
	return struct {
		Key string `xml:"kmsKeyId"`
	}{key}, nil
}

type blockPublicAccessRequest struct {
	request
	InternetGatewayBlockMode string
}

func modifyBlockPublicAccess(t *tx, in *blockPublicAccessRequest) (any, error) {
	modes := []string{blockOff, blockBidirectional, blockIngress}
	if !slices.Contains(modes, in.InternetGatewayBlockMode) {
		return nil, invalidValue("Value (%s) for parameter internetGatewayBlockMode is invalid. Expected one of: %s", in.InternetGatewayBlockMode, strings.Join(modes, ", "))
	}
	t.st.Settings.BlockPublicAccess = in.InternetGatewayBlockMode
	return t.blockPublicAccess()
}

func (t *tx) blockPublicAccess() (any, error) {
	type options struct {
		AccountID  string `xml:"awsAccountId"`
		Region     string `xml:"awsRegion"`
		State      string `xml:"state"`
		Mode       string `xml:"internetGatewayBlockMode"`
		Exclusions string `xml:"exclusionsAllowed"`
		ManagedBy  string `xml:"managedBy"`
	}
	return struct {
		Options options `xml:"vpcBlockPublicAccessOptions"`
	}{options{t.c.cfg.AccountID, t.c.cfg.Region, "update-complete", t.st.Settings.BlockPublicAccess, "not-allowed", "account"}}, nil
}

// imageCriteria are parameters of Allowed AMIs.
type imageCriteria struct {
	ImageProviders []string `query:"ImageProvider"`
}

type criteriaItem struct {
	Providers []string `xml:"imageProviderSet>item"`
}

func getAllowedImages(t *tx, _ *request) (any, error) {
	s := t.st.Settings
	return struct {
		State     string         `xml:"state"`
		Criteria  []criteriaItem `xml:"imageCriterionSet>item"`
		ManagedBy string         `xml:"managedBy"`
	}{s.Images, []criteriaItem{{s.ImageOwners}}, "account"}, nil
}

type enableImagesRequest struct {
	request
	AllowedImagesSettingsState string
}

func enableAllowedImages(t *tx, in *enableImagesRequest) (any, error) {
	if s := in.AllowedImagesSettingsState; s != imagesEnabled && s != imagesAudit {
		return nil, invalidValue("Value (%s) for parameter allowedImagesSettingsState is invalid. Expected one of: enabled, audit-mode", s)
	}
	t.st.Settings.Images = in.AllowedImagesSettingsState
	return struct {
		State string `xml:"allowedImagesSettingsState"`
	}{t.st.Settings.Images}, nil
}

func disableAllowedImages(t *tx, _ *request) (any, error) {
	t.st.Settings.Images = imagesDisabled
	return struct {
		State string `xml:"allowedImagesSettingsState"`
	}{imagesDisabled}, nil
}

type replaceCriteriaRequest struct {
	request
	ImageCriteria []imageCriteria `query:"ImageCriterion"`
}

func replaceImageCriteria(t *tx, in *replaceCriteriaRequest) (any, error) {
	var owners []string
	for _, c := range in.ImageCriteria {
		for _, o := range c.ImageProviders {
			if o != "none" && !imageOwner.MatchString(o) {
				return nil, invalidValue("Value (%s) for parameter imageProvider is invalid.", o)
			}
			owners = append(owners, o)
		}
	}
	t.st.Settings.ImageOwners = owners
	return struct {
		Return bool `xml:"returnValue"`
	}{true}, nil
}

// allowed reports whether the account's settings let an image be found and used. Its own are always allowed.
func (t *tx) allowed(i *Image) bool {
	s := t.st.Settings
	owner := cmp.Or(i.Owner, debianOwner)
	return s.Images != imagesEnabled || owner == t.c.cfg.AccountID || slices.Contains(s.ImageOwners, owner)
}
