package wire

import (
	"maps"
	"net/http"
	"net/url"
	"strings"
)

// Protocol is the protocol of one AWS service: its common errors and its wire format.
type Protocol struct {
	Name         string // of the service in ARNs and policies, such as "ec2"
	Throttled    *Error
	BadKey       *Error // the access key is not known, or the request not signed
	BadSignature *Error
	Expired      *Error // the credentials are no longer valid

	// Write answers an action. The fields of the answer are those of body, which must be a struct
	// or a pointer to one.
	Write func(w http.ResponseWriter, action, requestID string, body any) error
	// WriteError answers with a refusal.
	WriteError func(w http.ResponseWriter, requestID string, refusal *Error) error
}

// ClassicVersion is the version of the API of Classic Load Balancers.
const ClassicVersion = "2012-06-01"

const (
	notValidated = "AWS was not able to validate the provided access credentials"
	invalidToken = "The security token included in the request is invalid."
	expiredToken = "The security token included in the request is expired"
	badSignature = "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method."
)

// The services of the local cloud.
var (
	EC2 = &Protocol{
		Name:         "ec2",
		Throttled:    RefuseWith(http.StatusServiceUnavailable, "RequestLimitExceeded", "Request limit exceeded."),
		BadKey:       RefuseWith(http.StatusUnauthorized, "AuthFailure", notValidated),
		BadSignature: RefuseWith(http.StatusUnauthorized, "AuthFailure", notValidated),
		Expired:      Refuse("RequestExpired", "Request has expired."),
		Write:        writeEC2, WriteError: writeEC2Error,
	}
	STS = &Protocol{
		Name:         "sts",
		Throttled:    Refuse("Throttling", "Rate exceeded"),
		BadKey:       RefuseWith(http.StatusForbidden, "InvalidClientTokenId", invalidToken),
		BadSignature: RefuseWith(http.StatusForbidden, "SignatureDoesNotMatch", badSignature),
		Expired:      RefuseWith(http.StatusForbidden, "ExpiredToken", expiredToken),
		Write:        writeQuery(namespaceSTS), WriteError: writeQueryError(namespaceSTS),
	}
	IAM = &Protocol{
		Name:         "iam",
		Throttled:    Refuse("Throttling", "Rate exceeded"),
		BadKey:       RefuseWith(http.StatusForbidden, "InvalidClientTokenId", invalidToken),
		BadSignature: RefuseWith(http.StatusForbidden, "SignatureDoesNotMatch", badSignature),
		Expired:      RefuseWith(http.StatusForbidden, "ExpiredToken", expiredToken),
		Write:        writeQuery(namespaceIAM), WriteError: writeQueryError(namespaceIAM),
	}
	ELB = &Protocol{
		Name:         "elasticloadbalancing",
		Throttled:    Refuse("Throttling", "Rate exceeded"),
		BadKey:       RefuseWith(http.StatusForbidden, "InvalidClientTokenId", invalidToken),
		BadSignature: RefuseWith(http.StatusForbidden, "SignatureDoesNotMatch", badSignature),
		Expired:      RefuseWith(http.StatusForbidden, "ExpiredToken", expiredToken),
		Write:        writeQuery(namespaceELB), WriteError: writeQueryError(namespaceELB),
	}
	// ClassicELB is the API of Classic Load Balancers.
	ClassicELB = &Protocol{
		Name:         ELB.Name,
		Throttled:    ELB.Throttled,
		BadKey:       ELB.BadKey,
		BadSignature: ELB.BadSignature,
		Expired:      ELB.Expired,
		Write:        writeQuery(namespaceClassicELB), WriteError: writeQueryError(namespaceClassicELB),
	}
	SSM = &Protocol{
		Name:         "ssm",
		Throttled:    Refuse("ThrottlingException", "Rate exceeded"),
		BadKey:       Refuse("UnrecognizedClientException", invalidToken),
		BadSignature: Refuse("InvalidSignatureException", badSignature),
		Expired:      Refuse("ExpiredTokenException", expiredToken),
		Write:        writeJSON, WriteError: writeJSONError,
	}
	ServiceQuotas = &Protocol{
		Name:         "servicequotas",
		Throttled:    Refuse("TooManyRequestsException", "Rate exceeded"),
		BadKey:       Refuse("UnrecognizedClientException", invalidToken),
		BadSignature: Refuse("InvalidSignatureException", badSignature),
		Expired:      Refuse("ExpiredTokenException", expiredToken),
		Write:        writeJSON, WriteError: writeJSONError,
	}
	ECR = &Protocol{
		Name:         "ecr",
		Throttled:    Refuse("ThrottlingException", "Rate exceeded"),
		BadKey:       Refuse("UnrecognizedClientException", invalidToken),
		BadSignature: Refuse("InvalidSignatureException", badSignature),
		Expired:      Refuse("ExpiredTokenException", expiredToken),
		Write:        writeJSON, WriteError: writeJSONError,
	}
	// InstanceConnect answers the requests for tunnels. AWS documents neither these codes nor their
	// statuses; the form of the errors is that which the AWS CLI shows.
	InstanceConnect = &Protocol{
		Name:         "ec2-instance-connect",
		Throttled:    RefuseWith(http.StatusTooManyRequests, "ThrottlingException", "Rate exceeded"),
		BadKey:       RefuseWith(http.StatusForbidden, "UnrecognizedClientException", invalidToken),
		BadSignature: RefuseWith(http.StatusForbidden, "InvalidSignatureException", badSignature),
		Expired:      RefuseWith(http.StatusForbidden, "ExpiredTokenException", expiredToken),
		WriteError:   writeTunnelError,
	}
	// S3 answers most requests by itself.
	S3 = &Protocol{
		Name:         "s3",
		Throttled:    RefuseWith(http.StatusServiceUnavailable, "SlowDown", "Please reduce your request rate."),
		BadKey:       RefuseWith(http.StatusForbidden, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records."),
		BadSignature: RefuseWith(http.StatusForbidden, "SignatureDoesNotMatch", badSignature),
		Expired:      Refuse("ExpiredToken", "The provided token has expired."),
		Write:        writeS3, WriteError: writeS3Error,
	}
)

// Request is one call of an action.
type Request struct {
	Protocol *Protocol // EC2, InstanceConnect, STS, IAM, ELB, ClassicELB, SSM, ServiceQuotas, ECR or S3
	Action   string
	Form     url.Values // the input of the actions of EC2, InstanceConnect, STS, IAM and ELB, see Decode
	Body     []byte     // the input of the actions of SSM, ServiceQuotas and ECR, JSON
}

// ForS3 reports whether a request is for S3: it is signed for it, or its path names a bucket. The
// other services are asked at the root alone.
func ForS3(r *http.Request) bool {
	return Signer(r).Service == "s3" || r.URL.Path != "/"
}

// ParseRequest parses a request, whose body the caller has read. The requests of SSM, Service
// Quotas and ECR name their target in a header; those of STS, IAM, ELB and EC2 name an action in a form and differ in the version. Errors are in
// EC2's protocol.
func ParseRequest(r *http.Request, body []byte) (Request, error) {
	if target := r.Header.Get("X-Amz-Target"); target != "" {
		for prefix, p := range map[string]*Protocol{"AmazonSSM.": SSM, "ServiceQuotasV20190624.": ServiceQuotas, "AmazonEC2ContainerRegistry_V20150921.": ECR} {
			if action, ok := strings.CutPrefix(target, prefix); ok {
				return Request{Protocol: p, Action: action, Body: body}, nil
			}
		}
		return Request{}, Refuse("UnknownOperationException", "The target %s is not known here.", target)
	}
	form := r.URL.Query()
	posted, err := url.ParseQuery(string(body))
	if err != nil {
		return Request{}, Refuse("MalformedQueryString", "The query string contains a syntax error.")
	}
	maps.Copy(form, posted)
	req := Request{Protocol: EC2, Action: form.Get("Action"), Form: form}
	if req.Action == "" {
		return Request{}, Refuse("MissingAction", "The request is missing an action or a required parameter.")
	}
	switch form.Get("Version") {
	case "2011-06-15":
		req.Protocol = STS
	case "2010-05-08":
		req.Protocol = IAM
	case "2015-12-01":
		req.Protocol = ELB
	case ClassicVersion:
		req.Protocol = ClassicELB
	}
	return req, nil
}
