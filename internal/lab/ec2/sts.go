package ec2

import (
	"encoding/base32"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/ec2/awserr"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/ec2/query"
)

// stsNamespace is the XML namespace of STS responses.
const stsNamespace = "https://sts.amazonaws.com/doc/2011-06-15/"

type callerIdentity struct {
	ARN     string `xml:"Arn"`
	UserID  string `xml:"UserId"`
	Account string `xml:"Account"`
}

type stsCredentials struct {
	AccessKeyID  string    `xml:"AccessKeyId"`
	Secret       string    `xml:"SecretAccessKey"`
	SessionToken string    `xml:"SessionToken"`
	Expiration   time.Time `xml:"Expiration"`
}

type assumeRoleRequest struct {
	RoleArn         string
	RoleSessionName string
	ExternalId      string
	SourceIdentity  string
	Policy          string
	DurationSeconds *int
	PolicyArns      struct {
		Members []struct {
			Arn string `query:"arn"`
		} `query:"member"`
	}
	Tags struct {
		Members []struct{ Key, Value string } `query:"member"`
	}
	TransitiveTagKeys struct {
		Members []string `query:"member"`
	}
}

type assumeRoleResult struct {
	Credentials stsCredentials `xml:"Credentials"`
	User        struct {
		ID  string `xml:"AssumedRoleId"`
		ARN string `xml:"Arn"`
	} `xml:"AssumedRoleUser"`
}

type sessionTokenRequest struct{ DurationSeconds *int }

type sessionTokenResult struct {
	Credentials stsCredentials `xml:"Credentials"`
}

// performSTS runs one STS action for the owner of an access key.
func (c *Cloud) performSTS(name string, form url.Values, accessKeyID string) (any, error) {
	switch name {
	case "GetCallerIdentity":
		return c.callerIdentity(accessKeyID), nil
	case "AssumeRole":
		return c.assumeRole(form)
	case "GetSessionToken":
		in := sessionTokenRequest{}
		if err := query.Decode(form, &in); err != nil {
			return nil, err
		}
		me := c.callerIdentity(accessKeyID)
		creds, err := c.newSession(me.ARN, me.UserID, in.DurationSeconds, 12*time.Hour)
		return sessionTokenResult{creds}, err
	}
	return nil, awserr.New("InvalidAction", "Could not find operation %s for version 2011-06-15", name)
}

func (c *Cloud) callerIdentity(accessKeyID string) callerIdentity {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s, ok := c.st.Sessions[accessKeyID]; ok {
		return callerIdentity{s.ARN, s.UserID, c.cfg.AccountID}
	}
	return callerIdentity{"arn:aws:iam::" + c.cfg.AccountID + ":user/lab", "AIDALABLABLABLABLABLA", c.cfg.AccountID}
}

var (
	roleARN     = regexp.MustCompile(`^arn:aws:iam::(\d{12}):role/(?:.+/)?([\w+=,.@-]{1,64})$`)
	sessionName = regexp.MustCompile(`^[\w+=,.@-]{2,64}$`)
)

// assumeRole lets every caller assume every role of the account: there are no
// policies here.
func (c *Cloud) assumeRole(form url.Values) (any, error) {
	var in assumeRoleRequest
	if err := query.Decode(form, &in); err != nil {
		return nil, err
	}
	role := roleARN.FindStringSubmatch(in.RoleArn)
	switch {
	case role == nil:
		return nil, awserr.New("ValidationError", "%s is invalid", in.RoleArn)
	case !sessionName.MatchString(in.RoleSessionName):
		return nil, awserr.New("ValidationError", "1 validation error detected: Value '%s' at 'roleSessionName' failed to satisfy constraint: Member must satisfy regular expression pattern: [\\w+=,.@-]*", in.RoleSessionName)
	case role[1] != c.cfg.AccountID:
		return nil, awserr.WithStatus(http.StatusForbidden, "AccessDenied", "User: %s is not authorized to perform: sts:AssumeRole on resource: %s", c.callerIdentity("").ARN, in.RoleArn)
	}
	var out assumeRoleResult
	out.User.ID = "AROALABLABLABLABLABLA:" + in.RoleSessionName
	out.User.ARN = fmt.Sprintf("arn:aws:sts::%s:assumed-role/%s/%s", c.cfg.AccountID, role[2], in.RoleSessionName)
	var err error
	out.Credentials, err = c.newSession(out.User.ARN, out.User.ID, in.DurationSeconds, time.Hour)
	return out, err
}

func (c *Cloud) newSession(arn, userID string, seconds *int, lifetime time.Duration) (stsCredentials, error) {
	if seconds != nil {
		lifetime = time.Duration(*seconds) * time.Second
		if lifetime < 15*time.Minute || lifetime > 36*time.Hour {
			return stsCredentials{}, awserr.New("ValidationError", "1 validation error detected: Value '%d' at 'durationSeconds' failed to satisfy constraint: Member must have value greater than or equal to 900", *seconds)
		}
	}
	key := "ASIA" + strings.TrimRight(base32.StdEncoding.EncodeToString(c.bytes(10)), "=")
	s := session{
		Secret: base64.RawStdEncoding.EncodeToString(c.bytes(30)), Token: base64.StdEncoding.EncodeToString(c.bytes(96)),
		ARN: arn, UserID: userID, Expires: c.cfg.Clock.Now().Add(lifetime).Truncate(time.Second),
	}
	err := c.update("", nil, func(t *tx) error {
		t.st.Sessions[key] = s
		return nil
	})
	return stsCredentials{key, s.Secret, s.Token, s.Expires}, err
}

func (c *Cloud) bytes(n int) []byte {
	b := make([]byte, n)
	_, _ = io.ReadFull(c.cfg.Rand, b)
	return b
}

// writeSTS answers in STS's flavour of the query protocol.
func writeSTS(w http.ResponseWriter, action, requestID string, body any) error {
	result, err := marshalAs(action+"Result", body)
	if err != nil {
		return err
	}
	doc := struct {
		XMLName xml.Name
		Xmlns   string `xml:"xmlns,attr"`
		Result  []byte `xml:",innerxml"`
	}{XMLName: xml.Name{Local: action + "Response"}, Xmlns: stsNamespace}
	doc.Result = fmt.Appendf(result, "<ResponseMetadata><RequestId>%s</RequestId></ResponseMetadata>", requestID)
	return writeXML(w, http.StatusOK, requestID, doc)
}

func writeSTSError(w http.ResponseWriter, requestID string, refusal *awserr.Error) error {
	doc := struct {
		XMLName   xml.Name `xml:"ErrorResponse"`
		Xmlns     string   `xml:"xmlns,attr"`
		Type      string   `xml:"Error>Type"`
		Code      string   `xml:"Error>Code"`
		Message   string   `xml:"Error>Message"`
		RequestID string   `xml:"RequestId"`
	}{Xmlns: stsNamespace, Type: "Sender", Code: refusal.Code, Message: refusal.Message, RequestID: requestID}
	return writeXML(w, refusal.HTTPStatus(), requestID, doc)
}

func marshalAs(name string, body any) ([]byte, error) {
	var b strings.Builder
	if err := xml.NewEncoder(&b).EncodeElement(body, xml.StartElement{Name: xml.Name{Local: name}}); err != nil {
		return nil, fmt.Errorf("encoding %s: %w", name, err)
	}
	return []byte(b.String()), nil
}

func writeXML(w http.ResponseWriter, status int, requestID string, doc any) error {
	out, err := xml.Marshal(doc)
	if err != nil {
		return fmt.Errorf("encoding a response: %w", err)
	}
	return query.Send(w, query.ContentType, status, requestID, append([]byte(xml.Header), out...))
}
