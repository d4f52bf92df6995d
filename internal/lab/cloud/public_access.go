package cloud

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// S3 Block Public Access, which the object store does not have. ACLs are off in all buckets (bucket owner enforced), so the
// settings for ACLs are only kept.
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/access-control-block-public-access.html

// accessBlock is the configuration of a bucket.
type accessBlock struct {
	BlockPublicAcls       bool
	IgnorePublicAcls      bool
	BlockPublicPolicy     bool
	RestrictPublicBuckets bool
}

// newBucket is the configuration of every new bucket.
// https://aws.amazon.com/about-aws/whats-new/2023/04/amazon-s3-security-best-practices-buckets-default/
var newBucket = accessBlock{true, true, true, true}

// accessBlocks has the buckets whose configuration is not that of a new bucket. It is nil for one that was deleted.
type accessBlocks struct {
	file string // empty keeps them in memory

	mu    sync.Mutex
	saved struct{ Blocks map[string]*accessBlock }
}

func openAccessBlocks(name string) (*accessBlocks, error) {
	b := &accessBlocks{file: name}
	if name != "" {
		if err := file.ReadJSON(name, &b.saved); err != nil {
			return nil, fmt.Errorf("reading the settings of buckets: %w", err)
		}
	}
	return b, nil
}

// of returns the configuration of a bucket. ok is false if it was deleted.
func (b *accessBlocks) of(bucket string) (block accessBlock, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch kept, changed := b.saved.Blocks[bucket]; {
	case !changed:
		return newBucket, true
	case kept == nil:
		return accessBlock{}, false
	default:
		return *kept, true
	}
}

// change changes the configurations, unless they cannot be saved.
func (b *accessBlocks) change(f func(map[string]*accessBlock)) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := b.saved
	if next.Blocks = maps.Clone(next.Blocks); next.Blocks == nil {
		next.Blocks = map[string]*accessBlock{}
	}
	f(next.Blocks)
	if b.file != "" {
		if err := file.WriteJSON(b.file, next, 0o600); err != nil {
			return fmt.Errorf("saving the settings of buckets: %w", err)
		}
	}
	b.saved = next
	return nil
}

// serveObjects answers a request that no fault and no check has refused.
func (a *Account) serveObjects(w http.ResponseWriter, r *http.Request, id, action string) error {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch {
	case key == "" && slices.Contains([]string{"GetPublicAccessBlock", "PutPublicAccessBlock", "DeletePublicAccessBlock", "GetBucketPolicyStatus"}, action):
		return a.servePublicAccess(w, r, id, action, bucket)
	case key == "" && r.Method == http.MethodPut && r.URL.Query().Has("policy"):
		if refusal := a.blockPolicy(r, bucket); refusal != nil {
			return wire.S3.WriteError(w, id, refusal)
		}
	case action == "CreateBucket" && !slices.Contains(a.cfg.Objects.Buckets(), bucket): // perhaps one had this name before
		if err := a.blocks.change(func(all map[string]*accessBlock) { delete(all, bucket) }); err != nil {
			return wire.S3.WriteError(w, id, wire.AsError(err))
		}
	case anonymous(r):
		return a.serveAnonymous(w, r, id, bucket, key)
	}
	a.cfg.Objects.ServeHTTP(w, r)
	return nil
}

// servePublicAccess answers the actions that the object store does not have, or not as S3 has them. It gets the request all
// the same: it checks the signature and whether the bucket exists.
func (a *Account) servePublicAccess(w http.ResponseWriter, r *http.Request, id, action, bucket string) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return wire.S3.WriteError(w, id, wire.Refuse("MalformedXML", malformedXML))
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	checked := &held{header: http.Header{}}
	a.cfg.Objects.ServeHTTP(checked, r)
	good := http.StatusNotImplemented // of what is signed and on a bucket that exists
	if action == "GetBucketPolicyStatus" {
		good = http.StatusOK
	}
	if checked.status != good {
		return checked.send(w)
	}
	if anonymous(r) {
		return wire.S3.WriteError(w, id, accessDenied())
	}
	if action == "GetBucketPolicyStatus" { // the object store has asked for the permission
		return wire.S3.Write(w, action, id, struct {
			XMLName  xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ PolicyStatus"`
			IsPublic bool
		}{IsPublic: publicPolicy(a.cfg.Objects.Policy(bucket))})
	}
	if refusal := a.authorizeBlock(r, action, bucket); refusal != nil {
		return wire.S3.WriteError(w, id, refusal)
	}
	block, ok := a.blocks.of(bucket)
	switch action {
	case "GetPublicAccessBlock":
		if !ok {
			return wire.S3.WriteError(w, id, wire.RefuseWith(http.StatusNotFound, "NoSuchPublicAccessBlockConfiguration", "The public access block configuration was not found"))
		}
		return wire.S3.Write(w, action, id, struct {
			XMLName xml.Name `xml:"http://s3.amazonaws.com/doc/2006-03-01/ PublicAccessBlockConfiguration"`
			accessBlock
		}{accessBlock: block})
	case "DeletePublicAccessBlock":
		if err := a.blocks.change(func(all map[string]*accessBlock) { all[bucket] = nil }); err != nil {
			return wire.S3.WriteError(w, id, wire.AsError(err))
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	var wanted struct {
		XMLName xml.Name `xml:"PublicAccessBlockConfiguration"`
		accessBlock
	}
	if err := xml.Unmarshal(body, &wanted); err != nil {
		return wire.S3.WriteError(w, id, wire.Refuse("MalformedXML", malformedXML))
	}
	if err := a.blocks.change(func(all map[string]*accessBlock) { all[bucket] = &wanted.accessBlock }); err != nil {
		return wire.S3.WriteError(w, id, wire.AsError(err))
	}
	w.WriteHeader(http.StatusOK)
	return nil
}

const malformedXML = "The XML you provided was not well-formed or did not validate against our published schema"

// authorizeBlock asks the policies of the caller and the bucket's policy, one of which must allow the action. Who may put a
// block may delete it.
// https://docs.aws.amazon.com/AmazonS3/latest/API/API_DeletePublicAccessBlock.html
func (a *Account) authorizeBlock(r *http.Request, action, bucket string) *wire.Error {
	permission := "s3:PutBucketPublicAccessBlock"
	if action == "GetPublicAccessBlock" {
		permission = "s3:GetBucketPublicAccessBlock"
	}
	if owner := r.Header.Get("X-Amz-Expected-Bucket-Owner"); owner != "" && owner != a.cfg.AccountID {
		return accessDenied()
	}
	key := wire.Signer(r).AccessKeyID
	p := a.principal(key)
	arn := "arn:" + wire.Partition(a.cfg.Region) + ":s3:::" + bucket
	context := map[string][]string{"aws:RequestedRegion": {a.cfg.Region}}
	maps.Copy(context, a.delivered(key))
	demand := iam.Demand{Action: permission, Resource: arn, Context: context}
	allowed, refused := decideByPolicy(a.cfg.Objects.Policy(bucket), append(p.Context["aws:PrincipalArn"], p.ARN), a.cfg.AccountID, permission, bucket)
	switch {
	case refused:
		return wire.RefuseWith(http.StatusForbidden, "AccessDenied", "User: %s is not authorized to perform: %s on resource: %q with an explicit deny in a resource-based policy", p.ARN, permission, arn)
	case allowed && decision(p, demand) == "no_match":
		return nil
	}
	if err := p.Authorize([]iam.Demand{demand}); err != nil {
		return wire.RefuseWith(http.StatusForbidden, "AccessDenied", "%v", err)
	}
	return nil
}

// checkACL refuses an access control list, which the buckets do not have.
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/ensure-object-ownership.html
func checkACL(r *http.Request, action string) *wire.Error {
	canned, granted := r.Header.Get("X-Amz-Acl"), false
	for name := range r.Header {
		granted = granted || strings.HasPrefix(name, "X-Amz-Grant-")
	}
	switch {
	case granted:
	case canned == "bucket-owner-full-control", canned == "private" && action == "CreateBucket", canned == "" && action != "PutBucketAcl" && action != "PutObjectAcl":
		return nil
	}
	if action == "CreateBucket" {
		return wire.Refuse("InvalidBucketAclWithObjectOwnership", "Bucket cannot have ACLs set with ObjectOwnership's BucketOwnerEnforced setting")
	}
	return wire.Refuse("AccessControlListNotSupported", "The bucket does not allow ACLs")
}

func accessDenied() *wire.Error {
	return wire.RefuseWith(http.StatusForbidden, "AccessDenied", "Access Denied")
}

// maxPolicy is how many bytes a bucket's policy may have.
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/example-bucket-policies.html
const maxPolicy = 20 << 10

// blockPolicy refuses a public policy for a bucket that blocks them.
func (a *Account) blockPolicy(r *http.Request, bucket string) *wire.Error {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxPolicy+1))
	if err != nil || len(body) > maxPolicy { // AWS does not document the code
		_, _ = io.Copy(io.Discard, io.LimitReader(r.Body, maxRefused)) // or the client sees a broken connection before the answer
		return wire.Refuse("MalformedPolicy", "Policy exceeds the maximum allowed document size.")
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	block, _ := a.blocks.of(bucket)
	if anonymous(r) || !block.BlockPublicPolicy || !slices.Contains(a.cfg.Objects.Buckets(), bucket) || !publicPolicy(body) {
		return nil // the object store refuses what is wrong with it
	}
	cred, err := wire.Verify(r, body, a.tokens.Credentials, time.Now()) // the object store goes by the host's clock, too
	if err != nil {
		return wire.S3.BadSignature
	}
	return wire.RefuseWith(http.StatusForbidden, "AccessDenied",
		"User: %s is not authorized to perform: s3:PutBucketPolicy on resource: %q because public policies are prevented by the BlockPublicPolicy setting in S3 Block Public Access.",
		a.principal(cred.AccessKeyID).ARN, "arn:"+wire.Partition(a.cfg.Region)+":s3:::"+bucket)
}

// anonymous reports whether nobody has signed a request, as the object store decides it.
func anonymous(r *http.Request) bool {
	q := r.URL.Query()
	signed := []string{
		"X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Date", "X-Amz-Signature", "X-Amz-SignedHeaders", "X-Amz-Expires", "Expires", "AWSAccessKeyId", "Signature",
	}
	return r.Header.Get("Authorization") == "" && !slices.ContainsFunc(signed, func(name string) bool { return q.Get(name) != "" })
}

// serveAnonymous answers a request that nobody has signed: the bucket's policy says what anybody may do.
func (a *Account) serveAnonymous(w http.ResponseWriter, r *http.Request, id, bucket, key string) error {
	if block, _ := a.blocks.of(bucket); block.RestrictPublicBuckets && publicPolicy(a.cfg.Objects.Policy(bucket)) {
		return wire.S3.WriteError(w, id, accessDenied())
	}
	if key == "" || r.Method != http.MethodGet && r.Method != http.MethodHead {
		a.cfg.Objects.ServeHTTP(w, r)
		return nil
	}
	answer := &unlessMissing{ResponseWriter: w}
	a.cfg.Objects.ServeHTTP(answer, r)
	if answer.missing == nil {
		return nil
	}
	// Who may not list a bucket does not learn that an object does not exist.
	// https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html
	list, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+r.Host+"/"+bucket+"?list-type=2&max-keys=0", http.NoBody)
	if err != nil {
		return wire.S3.WriteError(w, id, accessDenied())
	}
	listed := &held{header: http.Header{}}
	a.cfg.Objects.ServeHTTP(listed, list)
	if listed.status == http.StatusForbidden {
		return wire.S3.WriteError(w, id, accessDenied())
	}
	return answer.missing.send(w)
}

// held is an answer that is not sent yet.
type held struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (h *held) Header() http.Header { return h.header }

// WriteHeader implements http.ResponseWriter.
func (h *held) WriteHeader(status int) { h.status = status }

// Write implements http.ResponseWriter.
func (h *held) Write(b []byte) (int, error) {
	if h.body.Len()+len(b) > maxBody {
		return 0, errors.New("an answer that is held may not be larger than a request")
	}
	return h.body.Write(b)
}

func (h *held) send(w http.ResponseWriter) error {
	maps.Copy(w.Header(), h.header)
	w.WriteHeader(h.status)
	_, err := w.Write(h.body.Bytes())
	return err
}

// unlessMissing holds the answer back that an object does not exist. The proxy cannot flush it: that would send the headers.
type unlessMissing struct {
	http.ResponseWriter
	missing *held
}

// WriteHeader implements http.ResponseWriter.
func (u *unlessMissing) WriteHeader(status int) {
	if status != http.StatusNotFound {
		u.ResponseWriter.WriteHeader(status)
		return
	}
	u.missing = &held{header: u.Header().Clone(), status: status}
	clear(u.Header())
}

// Write implements http.ResponseWriter.
func (u *unlessMissing) Write(b []byte) (int, error) {
	if u.missing != nil {
		return u.missing.Write(b)
	}
	return u.ResponseWriter.Write(b)
}
