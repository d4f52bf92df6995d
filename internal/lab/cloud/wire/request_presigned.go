package wire

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
)

// VerifyPresigned checks that the URL of a request without a body was signed with one of the keys, and
// that it is still valid.
func VerifyPresigned(r *http.Request, keys Keys, now time.Time) (Credential, error) {
	query := r.URL.Query()
	cred := Signer(r)
	signature := query.Get("X-Amz-Signature")
	if cred.AccessKeyID == "" || signature == "" {
		return cred, ErrUnsigned
	}
	creds, ok := keys(cred.AccessKeyID)
	if !ok || creds.SessionToken != query.Get("X-Amz-Security-Token") {
		return cred, ErrUnknownKey
	}
	at, err := time.Parse(timeFormat, query.Get("X-Amz-Date"))
	if err != nil {
		return cred, fmt.Errorf("%w: X-Amz-Date: %w", ErrBadSignature, err)
	}
	seconds, err := strconv.Atoi(query.Get("X-Amz-Expires"))
	if err != nil || seconds < 1 {
		return cred, fmt.Errorf("%w: X-Amz-Expires is %q", ErrBadSignature, query.Get("X-Amz-Expires"))
	}
	if at.Sub(now) > maxSkew || now.Sub(at) > time.Duration(seconds)*time.Second {
		return cred, ErrExpired
	}
	for name := range query {
		if strings.HasPrefix(name, "X-Amz-") && name != "X-Amz-Expires" {
			query.Del(name) // the signer sets it again
		}
	}
	again := &http.Request{
		Method: r.Method, Host: r.Host, Header: http.Header{},
		URL: &url.URL{Scheme: "https", Host: r.Host, Path: r.URL.Path, RawQuery: query.Encode()},
	}
	nothing := sha256.Sum256(nil)
	signed, _, err := v4.NewSigner().PresignHTTP(context.WithoutCancel(r.Context()), creds, again, hex.EncodeToString(nothing[:]), cred.Service, cred.Region, at)
	if err != nil {
		return cred, fmt.Errorf("re-signing the request: %w", err)
	}
	want, err := url.Parse(signed)
	if err != nil {
		return cred, fmt.Errorf("re-signing the request: %w", err)
	}
	if subtle.ConstantTimeCompare([]byte(want.Query().Get("X-Amz-Signature")), []byte(signature)) != 1 {
		return cred, ErrBadSignature
	}
	return cred, nil
}
