package wire

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// The reasons to refuse a request.
var (
	ErrUnsigned     = errors.New("the request is not signed")
	ErrUnknownKey   = errors.New("the access key id is not known")
	ErrBadSignature = errors.New("the signature does not match")
	ErrExpired      = errors.New("the signature is too old or from the future")
)

// maxSkew is how far a signature's time may lie from now, as on AWS.
const maxSkew = 15 * time.Minute

const (
	timeFormat      = "20060102T150405Z"
	unsignedPayload = "UNSIGNED-PAYLOAD"
)

// Credential is the scope of a signature.
type Credential struct {
	AccessKeyID, Region, Service string
}

// Keys returns the credentials of an access key id. ok is false if it is unknown.
type Keys func(accessKeyID string) (creds aws.Credentials, ok bool)

// Verify checks that r, whose body the caller has read, was signed with one of the keys. It signs
// the request again with the SDK's signer and compares.
func Verify(r *http.Request, body []byte, keys Keys, now time.Time) (Credential, error) {
	cred, signedHeaders, signature, err := parseAuthorization(r)
	if err != nil {
		return cred, err
	}
	creds, ok := keys(cred.AccessKeyID)
	if !ok {
		return cred, ErrUnknownKey
	}
	if creds.SessionToken != r.Header.Get("X-Amz-Security-Token") {
		return cred, ErrUnknownKey
	}
	at, err := time.Parse(timeFormat, r.Header.Get("X-Amz-Date"))
	if err != nil {
		return cred, fmt.Errorf("%w: X-Amz-Date: %w", ErrBadSignature, err)
	}
	if at.Sub(now).Abs() > maxSkew {
		return cred, ErrExpired
	}

	again := &http.Request{
		Method: r.Method,
		URL:    &url.URL{Scheme: "http", Host: r.Host, Path: r.URL.Path, RawPath: r.URL.RawPath, RawQuery: r.URL.RawQuery},
		Host:   r.Host,
		Header: http.Header{},
	}
	if slices.Contains(signedHeaders, "content-length") {
		n, err := strconv.ParseInt(r.Header.Get("Content-Length"), 10, 64)
		if err != nil {
			n = r.ContentLength
		}
		again.ContentLength = n
	}
	for _, h := range signedHeaders {
		if h != "host" && h != "content-length" {
			again.Header[http.CanonicalHeaderKey(h)] = r.Header.Values(h)
		}
	}
	sum := sha256.Sum256(body)
	hash := hex.EncodeToString(sum[:])
	if r.Header.Get("X-Amz-Content-Sha256") == unsignedPayload {
		hash = unsignedPayload
	}
	if err := v4.NewSigner().SignHTTP(context.WithoutCancel(r.Context()), creds, again, hash, cred.Service, cred.Region, at); err != nil {
		return cred, fmt.Errorf("re-signing the request: %w", err)
	}
	_, _, want, err := parseAuthorization(again)
	if err != nil {
		return cred, err
	}
	if subtle.ConstantTimeCompare([]byte(want), []byte(signature)) != 1 {
		return cred, ErrBadSignature
	}
	return cred, nil
}

// Signer returns who a request says has signed it, in its header or, if it is presigned, in its query.
// It checks nothing. The result is empty if nobody has.
func Signer(r *http.Request) Credential {
	cred, _, _, err := parseAuthorization(r)
	if err == nil {
		return cred
	}
	if scope := strings.Split(r.URL.Query().Get("X-Amz-Credential"), "/"); len(scope) == 5 {
		return Credential{AccessKeyID: scope[0], Region: scope[2], Service: scope[3]}
	}
	return Credential{}
}

// SigningKey derives the key that signs the requests of one day to one service in one region. date is
// like 20260102.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
func SigningKey(secret, date, region, service string) []byte {
	key := []byte("AWS4" + secret)
	for _, part := range []string{date, region, service, "aws4_request"} {
		mac := hmac.New(sha256.New, key)
		_, _ = mac.Write([]byte(part)) // never fails
		key = mac.Sum(nil)
	}
	return key
}

// parseAuthorization splits the header "AWS4-HMAC-SHA256
// Credential=AKID/date/region/service/aws4_request, SignedHeaders=a;b, Signature=hex".
func parseAuthorization(r *http.Request) (cred Credential, signedHeaders []string, signature string, err error) {
	rest, ok := strings.CutPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ")
	if !ok {
		return cred, nil, "", ErrUnsigned
	}
	for part := range strings.SplitSeq(rest, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		switch name {
		case "Credential":
			scope := strings.Split(value, "/")
			if len(scope) != 5 {
				return cred, nil, "", ErrUnsigned
			}
			cred = Credential{AccessKeyID: scope[0], Region: scope[2], Service: scope[3]}
		case "SignedHeaders":
			signedHeaders = strings.Split(value, ";")
		case "Signature":
			signature = value
		}
	}
	if cred.AccessKeyID == "" || signature == "" {
		return cred, nil, "", ErrUnsigned
	}
	return cred, signedHeaders, signature, nil
}
