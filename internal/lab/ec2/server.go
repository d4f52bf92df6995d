package ec2

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/ec2/awserr"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/ec2/query"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/ec2/sigv4"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/ec2/ssm"
)

// actions is the EC2 API.
var actions = func() map[string]action {
	all := map[string]action{}
	for _, some := range []map[string]action{
		vpcActions, subnetActions, gatewayActions, routeTableActions, routeActions, groupActions, ruleActions,
		instanceActions, instanceTypeActions, imageActions, interfaceActions, volumeActions, addressActions,
		keyPairActions, tagActions, regionActions,
	} {
		maps.Copy(all, some)
	}
	return all
}()

// Actions are the names of the EC2 actions the cloud knows.
func Actions() []string { return slices.Sorted(maps.Keys(actions)) }

// maxBody bounds a request. EC2's own limit is of this order.
const maxBody = 1 << 20

// service is how one AWS service answers: its throttling and authentication
// errors, and its wire format.
type service struct {
	throttled  *awserr.Error
	badKey     *awserr.Error
	badSig     *awserr.Error
	expired    *awserr.Error
	write      func(w http.ResponseWriter, action, requestID string, body any) error
	writeError func(w http.ResponseWriter, requestID string, refusal *awserr.Error) error
}

const authMessage = "AWS was not able to validate the provided access credentials"

var (
	invalidToken = "The security token included in the request is invalid."
	expiredToken = "The security token included in the request is expired"
	badSignature = "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method."

	ec2Service = service{
		throttled: awserr.WithStatus(http.StatusServiceUnavailable, "RequestLimitExceeded", "Request limit exceeded."),
		badKey:    awserr.WithStatus(http.StatusUnauthorized, "AuthFailure", authMessage),
		badSig:    awserr.WithStatus(http.StatusUnauthorized, "AuthFailure", authMessage),
		expired:   awserr.New("RequestExpired", "Request has expired."),
		write:     query.Write, writeError: query.WriteError,
	}
	stsService = service{
		throttled: awserr.New("Throttling", "Rate exceeded"),
		badKey:    awserr.WithStatus(http.StatusForbidden, "InvalidClientTokenId", "%s", invalidToken),
		badSig:    awserr.WithStatus(http.StatusForbidden, "SignatureDoesNotMatch", "%s", badSignature),
		expired:   awserr.WithStatus(http.StatusForbidden, "ExpiredToken", "%s", expiredToken),
		write:     writeSTS, writeError: writeSTSError,
	}
	ssmService = service{
		throttled: awserr.New("ThrottlingException", "Rate exceeded"),
		badKey:    awserr.New("UnrecognizedClientException", "%s", invalidToken),
		badSig:    awserr.New("InvalidSignatureException", "%s", badSignature),
		expired:   awserr.New("ExpiredTokenException", "%s", expiredToken),
		write:     writeJSON, writeError: writeJSONError,
	}
)

// ServeHTTP answers the AWS APIs at / and the control endpoint under /_lab/.
func (c *Cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, controlPrefix) {
		c.controls.ServeHTTP(w, r)
		return
	}
	if err := c.serveAWS(w, r); err != nil {
		c.log.Error("a response could not be written", "error", err)
	}
}

func (c *Cloud) serveAWS(w http.ResponseWriter, r *http.Request) error {
	id := c.requestID()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return query.WriteError(w, id, awserr.WithStatus(http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "%v", err))
	}
	svc, name, form, err := parseService(r, body)
	if err != nil {
		return query.WriteError(w, id, awserr.From(err))
	}
	c.calls.add(name)
	out, err := c.answer(r, body, svc, name, form)
	if err != nil {
		refusal := awserr.From(err)
		c.log.Info("refused", "action", name, "code", refusal.Code, "message", refusal.Message)
		return svc.writeError(w, id, refusal)
	}
	c.log.Debug("answered", "action", name)
	return svc.write(w, name, id, out)
}

// parseService finds out which of the three services a request is for, by what the
// protocols differ in: SSM names its target in a header, STS and EC2 name an
// action in a form, under different versions.
func parseService(r *http.Request, body []byte) (svc *service, name string, form url.Values, err error) {
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		name, ok := strings.CutPrefix(target, ssm.Target)
		if !ok {
			return nil, "", nil, awserr.New("UnknownOperationException", "The target %s is not known here.", target)
		}
		return &ssmService, name, nil, nil
	}
	form = r.URL.Query()
	posted, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, "", nil, awserr.New("MalformedQueryString", "The query string contains a syntax error.")
	}
	maps.Copy(form, posted)
	if name = form.Get("Action"); name == "" {
		return nil, "", nil, awserr.New("MissingAction", "The request is missing an action or a required parameter.")
	}
	if form.Get("Version") == "2011-06-15" {
		return &stsService, name, form, nil
	}
	return &ec2Service, name, form, nil
}

func (c *Cloud) answer(r *http.Request, body []byte, svc *service, name string, form url.Values) (any, error) {
	cred, err := sigv4.Verify(r, body, c.credentials, c.cfg.Clock.Now())
	switch {
	case errors.Is(err, sigv4.ErrUnknownKey) || errors.Is(err, sigv4.ErrMissing):
		return nil, svc.badKey
	case err != nil:
		return nil, svc.badSig
	case c.sessionExpired(cred.AccessKeyID):
		return nil, svc.expired
	case cred.Region != c.cfg.Region:
		return nil, awserr.WithStatus(svc.badSig.HTTPStatus(), svc.badSig.Code, "Credential should be scoped to a valid region: %s, not %s.", c.cfg.Region, cred.Region)
	}
	if refusal := c.faults.Refuse(name, svc.throttled); refusal != nil {
		return nil, refusal
	}
	switch svc {
	case &ssmService:
		return c.params.Serve(name, body)
	case &stsService:
		return c.performSTS(name, form, cred.AccessKeyID)
	}
	return c.perform(name, form)
}

func (c *Cloud) credentials(accessKeyID string) (aws.Credentials, bool) {
	if accessKeyID == c.cfg.Credentials.AccessKeyID {
		return c.cfg.Credentials, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.st.Sessions[accessKeyID]
	return aws.Credentials{AccessKeyID: accessKeyID, SecretAccessKey: s.Secret, SessionToken: s.Token}, ok
}

func (c *Cloud) sessionExpired(accessKeyID string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, ok := c.st.Sessions[accessKeyID]
	return ok && c.cfg.Clock.Now().After(s.Expires)
}

func (c *Cloud) requestID() string {
	b := c.bytes(16)
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

func writeJSON(w http.ResponseWriter, _, requestID string, body any) error {
	return sendJSON(w, http.StatusOK, requestID, body)
}

func writeJSONError(w http.ResponseWriter, requestID string, refusal *awserr.Error) error {
	return sendJSON(w, refusal.HTTPStatus(), requestID, map[string]string{"__type": refusal.Code, "message": refusal.Message})
}

func sendJSON(w http.ResponseWriter, status int, requestID string, body any) error {
	out, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding a response: %w", err)
	}
	return query.Send(w, "application/x-amz-json-1.1", status, requestID, out)
}
