package cloud

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/webidentity"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// ownS3 lets this account's STS read what an issuer keeps in this account's S3. It asks without a signature, as it does
// any other issuer. TLS is left out: on AWS, whoever trusts public authorities trusts S3's certificates.
type ownS3 struct {
	account   *Account
	otherwise http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (o ownS3) RoundTrip(r *http.Request) (*http.Response, error) {
	at, ok := o.account.inS3(r.URL)
	if !ok || o.account.cfg.Objects == nil {
		return o.otherwise.RoundTrip(r)
	}
	asked := r.Clone(r.Context())
	asked.URL = &url.URL{Scheme: "http", Host: r.URL.Host, Path: at, RawQuery: r.URL.RawQuery}
	asked.Host, asked.RequestURI, asked.RemoteAddr = r.URL.Host, asked.URL.RequestURI(), "sts."+wire.Domain(o.account.cfg.Region)
	asked.Body = http.NoBody
	answer := &held{header: http.Header{}}
	if err := o.account.serveS3(answer, asked); err != nil {
		return nil, fmt.Errorf("reading %s: %w", r.URL, err)
	}
	return &http.Response{
		StatusCode: answer.status, Status: http.StatusText(answer.status), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: answer.header, Body: io.NopCloser(&answer.body), ContentLength: int64(answer.body.Len()), Request: r,
	}, nil
}

// inS3 returns the path of a URL in path style, if its host is that of S3 in this account's region. The certificate of S3 is
// not valid for buckets whose names have dots.
// https://docs.aws.amazon.com/AmazonS3/latest/userguide/VirtualHosting.html
func (a *Account) inS3(u *url.URL) (at string, ok bool) {
	host := "s3." + a.cfg.Region + "." + wire.Domain(a.cfg.Region)
	if u.Scheme != "https" || u.Port() != "" && u.Port() != "443" {
		return "", false
	}
	if u.Hostname() == host {
		return u.Path, true
	}
	bucket, ok := strings.CutSuffix(u.Hostname(), "."+host)
	return "/" + bucket + u.Path, ok && bucket != "" && !strings.Contains(bucket, ".")
}

// s3Thumbprint is that of Starfield Services Root Certificate Authority - G2, with which the chains of S3 end. STS does not
// look at it.
// https://www.amazontrust.com/repository/
// https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_providers_create_oidc_verify-thumbprint.html
const s3Thumbprint = "9e99a48a9960b14926bb7f3b02e22da2b0ab7280"

// thumbprintOf returns the thumbprint that IAM notes of an issuer itself.
func (a *Account) thumbprintOf(issuer *url.URL) (string, error) {
	if _, ok := a.inS3(issuer); ok {
		return s3Thumbprint, nil
	}
	return webidentity.Thumbprint(issuer)
}
