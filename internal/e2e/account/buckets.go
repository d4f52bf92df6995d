package account

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// Buckets are an S3 in memory: PutObject, GetObject, HeadObject and DeleteObject, path style. It checks signatures,
// digests and the policies of users, and refuses what S3 would refuse: a bucket of another region,
// and the word that an object is missing to somebody who may not list the bucket.
type Buckets struct {
	cloud *cloud.Account

	mu      sync.Mutex
	buckets map[string]*bucket
}

type bucket struct {
	region  string
	objects map[string]Object
	open    string // everybody may read what begins with it; empty is nothing
}

// Object is an object of a bucket.
type Object struct {
	Content []byte
	// SHA256 is the digest that came with it, in base64; empty if none did.
	SHA256 string
	// KMSKeyID is the KMS key that it is encrypted with, empty without one.
	KMSKeyID string
}

// Make makes an empty bucket.
func (b *Buckets) Make(name, region string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buckets[name] = &bucket{region: region, objects: map[string]Object{}}
}

// Publish lets everybody read the objects whose keys begin with a prefix; an empty one lets nobody.
func (b *Buckets) Publish(name, prefix string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buckets[name].open = prefix
}

// Put writes an object, as somebody else would.
func (b *Buckets) Put(name, key string, o Object) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buckets[name].objects[key] = o
}

// Get returns an object, the zero Object if there is none.
func (b *Buckets) Get(name, key string) Object {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buckets[name].objects[key]
}

// Delete deletes an object, as somebody else would.
func (b *Buckets) Delete(name, key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.buckets[name].objects, key)
}

// Keys returns the keys of a bucket's objects, sorted.
func (b *Buckets) Keys(name string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.buckets[name].objects))
}

// IsS3 reports whether a request is for S3. All services of an account have one URL.
func IsS3(r *http.Request) bool {
	signed := r.Header.Get("Authorization")
	return strings.Contains(signed, "/s3/aws4_request") || signed == "" && strings.Count(r.URL.Path, "/") > 1 && !strings.HasPrefix(r.URL.Path, cloud.ControlPrefix)
}

// S3Action returns the name of the operation of a request for S3.
func S3Action(r *http.Request) string {
	return map[string]string{http.MethodPut: "PutObject", http.MethodGet: "GetObject", http.MethodHead: "HeadObject", http.MethodDelete: "DeleteObject"}[r.Method]
}

// ServeHTTP implements http.Handler.
func (b *Buckets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	name, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	answer := b.answer
	if r.Header.Get("Authorization") == "" {
		answer = b.toAnybody
	}
	o, refused := answer(r, body, name, key)
	if refused != nil {
		refuse(w, r, refused)
		return
	}
	if o.KMSKeyID != "" {
		w.Header().Set("X-Amz-Server-Side-Encryption", "aws:kms")
		w.Header().Set("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id", o.KMSKeyID)
	}
	if r.Method == http.MethodPut {
		return
	}
	if r.Method == http.MethodDelete {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	if o.SHA256 != "" && r.Header.Get("X-Amz-Checksum-Mode") == "ENABLED" {
		w.Header().Set("X-Amz-Checksum-Sha256", o.SHA256)
	}
	_, _ = w.Write(o.Content) // of a HEAD, net/http sends the headers only
}

// toAnybody answers a request that nobody has signed.
func (b *Buckets) toAnybody(r *http.Request, _ []byte, name, key string) (Object, *wire.Error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.buckets[name]
	if found == nil {
		return Object{}, wire.RefuseWith(http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist")
	}
	o, ok := found.objects[key]
	if !ok || found.open == "" || !strings.HasPrefix(key, found.open) || r.Method != http.MethodGet { // nobody may list the bucket
		return Object{}, wire.RefuseWith(http.StatusForbidden, "AccessDenied", "Access Denied")
	}
	return o, nil
}

func (b *Buckets) answer(r *http.Request, body []byte, name, key string) (Object, *wire.Error) {
	identities := b.cloud.Identities()
	cred, err := wire.Verify(r, body, func(id string) (aws.Credentials, bool) {
		if id == AccessKey {
			return aws.Credentials{AccessKeyID: AccessKey, SecretAccessKey: SecretKey}, true
		}
		u, ok := identities.UserOf(id)
		return aws.Credentials{AccessKeyID: u.AccessKeyID, SecretAccessKey: u.SecretAccessKey}, ok
	}, time.Now())
	switch {
	case errors.Is(err, wire.ErrUnknownKey) || errors.Is(err, wire.ErrUnsigned):
		return Object{}, wire.RefuseWith(http.StatusForbidden, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records.")
	case err != nil:
		return Object{}, wire.RefuseWith(http.StatusForbidden, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided.")
	}
	caller := iam.Principal{Everything: cred.AccessKeyID == AccessKey}
	if u, ok := identities.UserOf(cred.AccessKeyID); ok {
		caller = identities.PrincipalOf(u.ARN)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	found := b.buckets[name]
	switch {
	case found == nil:
		return Object{}, wire.RefuseWith(http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist")
	case found.region != cred.Region:
		return Object{}, wire.RefuseWith(http.StatusMovedPermanently, "PermanentRedirect", "The bucket you are attempting to access must be addressed using the specified endpoint.")
	}
	action, arn := "s3:GetObject", "arn:"+wire.Partition(found.region)+":s3:::"+name
	switch r.Method {
	case http.MethodPut:
		action = "s3:PutObject"
	case http.MethodDelete:
		action = "s3:DeleteObject"
	}
	if err := caller.Authorize([]iam.Demand{{Action: action, Resource: arn + "/" + key}}); err != nil {
		return Object{}, wire.RefuseWith(http.StatusForbidden, "AccessDenied", "%v", err)
	}
	if r.Method == http.MethodPut {
		digest := sha256.Sum256(body)
		o := Object{body, r.Header.Get("X-Amz-Checksum-Sha256"), r.Header.Get("X-Amz-Server-Side-Encryption-Aws-Kms-Key-Id")}
		if o.SHA256 != "" && o.SHA256 != base64.StdEncoding.EncodeToString(digest[:]) {
			return Object{}, wire.RefuseWith(http.StatusBadRequest, "BadDigest", "The SHA256 you specified did not match the calculated checksum.")
		}
		found.objects[key] = o
		return o, nil
	}
	if r.Method == http.MethodDelete {
		delete(found.objects, key)
		return Object{}, nil
	}
	o, ok := found.objects[key]
	if !ok {
		// https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html, Permissions
		if err := caller.Authorize([]iam.Demand{{Action: "s3:ListBucket", Resource: arn}}); err != nil {
			return Object{}, wire.RefuseWith(http.StatusForbidden, "AccessDenied", "%v", err)
		}
		return Object{}, wire.RefuseWith(http.StatusNotFound, "NoSuchKey", "The specified key does not exist.")
	}
	return o, nil
}

// refuse writes an error of S3. The answer to a HEAD has no body, and so no code.
func refuse(w http.ResponseWriter, r *http.Request, e *wire.Error) {
	var doc bytes.Buffer
	_ = xml.NewEncoder(&doc).Encode(struct {
		XMLName xml.Name `xml:"Error"`
		Code    string
		Message string
	}{Code: e.Code, Message: e.Message}) // texts only
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(e.HTTPStatus())
	if r.Method != http.MethodHead {
		_, _ = w.Write(doc.Bytes())
	}
}
