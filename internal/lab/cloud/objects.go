package cloud

import (
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// Objects is the program that keeps S3's buckets and objects. It checks signatures, asks the
// account's Authority for permission, and answers in S3's protocol.
type Objects interface {
	http.Handler
	// Ready starts it, if it does not run.
	Ready(ctx context.Context) error
	// Buckets returns the names of the buckets.
	Buckets() []string
	// Policy returns the policy of a bucket, nil if it has none.
	Policy(bucket string) []byte
}

// serveS3 passes a request on to the object store, unless a fault or a check of this account refuses
// it.
func (a *Account) serveS3(w http.ResponseWriter, r *http.Request) error {
	id, action, signer := a.requestID(), s3Action(r), wire.Signer(r)
	req := wire.Request{Protocol: wire.S3, Action: action, Form: url.Values{"ResourceId": {strings.Trim(r.URL.Path, "/")}}}
	a.calls.add(action)
	began := a.cfg.Clock.Now()
	key := signer.AccessKeyID
	if _, known := a.tokens.Credentials(key); !known {
		key = ""
	}
	if refusal := a.refuseS3(r, action, signer); refusal != nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, maxRefused)) // or the client sees a broken connection before the answer
		a.record(r, req, id, key, a.cfg.Clock.Now().Sub(began), refusal)
		a.log.Info("refused", "action", action, "code", refusal.Code, "message", refusal.Message)
		return wire.S3.WriteError(w, id, refusal)
	}
	answer := &observed{ResponseWriter: w}
	err := a.serveObjects(answer, r, id, action)
	var refused error
	if e := answer.refusal(); e != nil {
		refused = e
	}
	a.record(r, req, id, key, a.cfg.Clock.Now().Sub(began), refused)
	return err
}

// maxRefused is how much of the body of a refused request is read. A client that sends more sees its
// connection end.
const maxRefused = 64 << 20

// refuseS3 returns why a request does not reach the object store, nil if it does.
func (a *Account) refuseS3(r *http.Request, action string, signer wire.Credential) *wire.Error {
	if refusal := a.faults.Refuse(action, wire.S3.Throttled); refusal != nil {
		return wire.AsError(refusal)
	}
	if signer.AccessKeyID != "" && a.tokens.Expired(signer.AccessKeyID) {
		return wire.S3.Expired
	}
	if refusal := a.checkEncryption(r, signer.AccessKeyID); refusal != nil {
		return refusal
	}
	if refusal := checkACL(r, action); refusal != nil {
		return refusal
	}
	if err := a.cfg.Objects.Ready(r.Context()); err != nil {
		return wire.RefuseWith(http.StatusServiceUnavailable, "ServiceUnavailable", "%v", err)
	}
	return nil
}

// kmsKey matches the names of KMS keys that a request may give: an id, an alias, or the ARN of
// either.
var kmsKey = regexp.MustCompile(`^(?:arn:aws(?:-cn|-us-gov)?:kms:([a-z0-9-]+):([0-9]{12}):)?(?:alias/[A-Za-z0-9/_-]+|(?:key/)?(?:mrk-[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}))$`)

// checkEncryption checks the KMS key that an object is to be encrypted with. The account has no KMS:
// every key of its own region exists, and who writes needs kms:GenerateDataKey for it. The object
// store keeps the object as it is.
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingKMSEncryption.html
func (a *Account) checkEncryption(r *http.Request, accessKeyID string) *wire.Error {
	key, kind := r.Header.Get("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id"), r.Header.Get("X-Amz-Server-Side-Encryption")
	switch {
	case kind != "" && kind != "AES256" && kind != "aws:kms" && kind != "aws:kms:dsse":
		return wire.Refuse("InvalidEncryptionAlgorithmError", "The encryption request that you specified is not valid. The valid value is AES256.")
	case key == "":
		return nil
	case kind == "" || kind == "AES256":
		return wire.Refuse("InvalidArgument", "Server Side Encryption with AWS KMS managed key requires HTTP header x-amz-server-side-encryption : aws:kms")
	}
	parts := kmsKey.FindStringSubmatch(key)
	if parts == nil {
		return wire.Refuse("KMS.NotFoundException", "Invalid keyId %s", key)
	}
	if parts[1] != "" && parts[1] != a.cfg.Region {
		return wire.Refuse("KMS.NotFoundException", "Invalid arn %s", parts[1])
	}
	arn := key
	if parts[1] == "" {
		arn = "arn:" + wire.Partition(a.cfg.Region) + ":kms:" + a.cfg.Region + ":" + a.cfg.AccountID + ":"
		if !strings.Contains(key, "/") {
			arn += "key/"
		}
		arn += key
	}
	p := a.principal(accessKeyID)
	err := p.Authorize([]iam.Demand{{Action: "kms:GenerateDataKey", Resource: arn, Context: map[string][]string{"aws:RequestedRegion": {a.cfg.Region}}}})
	var denied *iam.DeniedError
	if errors.As(err, &denied) {
		return wire.RefuseWith(http.StatusForbidden, "AccessDenied", "%v", denied)
	}
	return nil
}

// observed is an answer of the object store. The start of an error is kept, for the log.
type observed struct {
	http.ResponseWriter
	status int
	start  bytes.Buffer
}

// Unwrap lets the proxy flush.
func (o *observed) Unwrap() http.ResponseWriter { return o.ResponseWriter }

// WriteHeader implements http.ResponseWriter.
func (o *observed) WriteHeader(status int) {
	o.status = status
	o.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (o *observed) Write(b []byte) (int, error) {
	const enough = 4096
	if o.status >= http.StatusBadRequest && o.start.Len() < enough {
		o.start.Write(b)
	}
	return o.ResponseWriter.Write(b)
}

// refusal returns the error of the answer, nil if it has none. Answers to HEAD have a status alone.
func (o *observed) refusal() *wire.Error {
	if o.status < http.StatusBadRequest {
		return nil
	}
	var said struct{ Code, Message string }
	_ = xml.Unmarshal(o.start.Bytes(), &said)
	e := &wire.Error{Message: said.Message, Status: o.status}
	e.Code = said.Code // the object store's, not one of this account
	if e.Code == "" {
		e.Code = http.StatusText(o.status)
	}
	return e
}

// s3Subresources are the query parameters that make an action another one, with the name of what
// they stand for. A * is Bucket or Object.
// https://docs.aws.amazon.com/AmazonS3/latest/API/API_Operations_Amazon_Simple_Storage_Service.html
var s3Subresources = []struct{ parameter, name string }{
	{"accelerate", "BucketAccelerateConfiguration"}, {"acl", "*Acl"}, {"cors", "BucketCors"},
	{"encryption", "BucketEncryption"}, {"legal-hold", "ObjectLegalHold"}, {"lifecycle", "BucketLifecycleConfiguration"},
	{"location", "BucketLocation"}, {"logging", "BucketLogging"}, {"notification", "BucketNotificationConfiguration"},
	{"object-lock", "ObjectLockConfiguration"}, {"ownershipControls", "BucketOwnershipControls"}, {"policy", "BucketPolicy"},
	{"policyStatus", "BucketPolicyStatus"}, {"publicAccessBlock", "PublicAccessBlock"}, {"replication", "BucketReplication"},
	{"retention", "ObjectRetention"}, {"tagging", "*Tagging"}, {"versioning", "BucketVersioning"}, {"website", "BucketWebsite"},
}

// s3Verbs begin the names of most actions.
var s3Verbs = map[string]string{
	http.MethodGet: "Get", http.MethodHead: "Head", http.MethodPut: "Put", http.MethodPost: "Post", http.MethodDelete: "Delete",
}

// s3Action names the action of a request in S3's REST protocol, for faults, counts and logs.
func s3Action(r *http.Request) string {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	q, verb, on, plain := r.URL.Query(), s3Verbs[r.Method], "Object", s3ObjectAction
	switch {
	case verb == "":
		return r.Method
	case bucket == "":
		return "ListBuckets"
	case key == "":
		on, plain = "Bucket", s3BucketAction
	}
	for _, s := range s3Subresources {
		if q.Has(s.parameter) {
			return verb + strings.Replace(s.name, "*", on, 1)
		}
	}
	return cmp.Or(plain(r, q), verb+on)
}

// s3ObjectAction returns the action on an object, if its name is not made of the verb.
func s3ObjectAction(r *http.Request, q url.Values) string {
	switch {
	case q.Has("uploads"):
		return "CreateMultipartUpload"
	case q.Has("uploadId"):
		return map[string]string{
			http.MethodGet: "ListParts", http.MethodPut: "UploadPart",
			http.MethodPost: "CompleteMultipartUpload", http.MethodDelete: "AbortMultipartUpload",
		}[r.Method]
	case r.Method == http.MethodPut && r.Header.Get("X-Amz-Copy-Source") != "":
		return "CopyObject"
	}
	return ""
}

// s3BucketAction returns the action on a bucket, if its name is not made of the verb.
func s3BucketAction(r *http.Request, q url.Values) string {
	switch {
	case q.Has("delete"):
		return "DeleteObjects"
	case r.Method == http.MethodPut:
		return "CreateBucket"
	case r.Method != http.MethodGet:
		return ""
	case q.Has("versions"):
		return "ListObjectVersions"
	case q.Has("uploads"):
		return "ListMultipartUploads"
	case q.Has("list-type"):
		return "ListObjectsV2"
	}
	return "ListObjects"
}
