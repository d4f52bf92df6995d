package oidc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/object"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/issuer"
)

// documentLimit is how many bytes of a document are read. A key has some 300.
const documentLimit = 64 << 10

// properties of the documents. A cache in front of the bucket keeps them for a minute, so that a rotation does not
// wait for long.
var properties = object.Properties{ContentType: "application/json", CacheControl: "max-age=60", Public: true}

func (s Spec) at(path string) object.Ref {
	out := s.Place
	out.Key += path
	return out
}

// publish writes the documents, the keys first: a configuration that names keys which are not there would be worse than
// none. Documents of somebody else are left alone. exists says that the issuer has a provider.
func (s Spec) publish(ctx context.Context, c *aws.Client, d issuer.Documents, exists bool) error {
	if s.Place.Bucket == "" {
		return nil
	}
	if err := s.checkConfiguration(ctx, c); err != nil {
		return err
	}
	if !exists && !s.Claim.Adopt {
		if err := s.checkKeys(ctx, c, d); err != nil {
			return err
		}
	}
	for _, document := range []struct {
		path    string
		content []byte
	}{{issuer.KeysPath, d.Keys}, {issuer.ConfigurationPath, d.Configuration}} {
		if _, err := object.Put(ctx, c, s.at(document.path), document.content, properties); err != nil {
			return err
		}
	}
	return nil
}

// OtherIssuerError says that a place has the documents of somebody else.
type OtherIssuerError struct {
	Place  object.Ref
	Issuer string // another issuer; empty if only the keys are others
}

func (e *OtherIssuerError) Error() string {
	if e.Issuer != "" {
		return fmt.Sprintf("%s has the documents of another issuer, %s: nothing was written there", e.Place, e.Issuer)
	}
	return fmt.Sprintf("%s shows the keys of another cluster for this issuer, perhaps of one in another account: nothing was written there. Use another prefix, or delete the documents if that cluster is gone", e.Place)
}

// document returns what a place has; empty if it has nothing of a document's size.
func (s Spec) document(ctx context.Context, c *aws.Client, path string) ([]byte, error) {
	content, err := object.Get(ctx, c, s.at(path), documentLimit)
	var large *foreign.TooMuchError
	if errors.Is(err, object.ErrNotFound) || errors.As(err, &large) {
		return nil, nil
	}
	return content, err
}

// checkConfiguration returns an OtherIssuerError if the place has documents of another issuer.
func (s Spec) checkConfiguration(ctx context.Context, c *aws.Client) error {
	content, err := s.document(ctx, c, issuer.ConfigurationPath)
	if err != nil {
		return err
	}
	if of := issuer.Named(content); of != "" && of != s.Issuer {
		return &OtherIssuerError{s.Place, of}
	}
	return nil
}

// checkKeys returns an OtherIssuerError if the place shows keys, and none of ours.
func (s Spec) checkKeys(ctx context.Context, c *aws.Client, d issuer.Documents) error {
	content, err := s.document(ctx, c, issuer.KeysPath)
	if err == nil && d.ForeignKeys(content) {
		err = &OtherIssuerError{Place: s.Place}
	}
	return err
}

// withdraw deletes the documents, the configuration first. Documents of another issuer are left alone.
func (s Spec) withdraw(ctx context.Context, c *aws.Client) error {
	if s.Place.Bucket == "" {
		return nil
	}
	var other *OtherIssuerError
	switch err := s.checkConfiguration(ctx, c); {
	case aws.IsCode(err, "NoSuchBucket") || errors.As(err, &other):
		return nil
	case err != nil:
		return err
	}
	for _, path := range []string{issuer.ConfigurationPath, issuer.KeysPath} {
		if err := object.Delete(ctx, c, s.at(path)); err != nil {
			return err
		}
	}
	return nil
}

// await waits until anybody can read the documents at the issuer's URL: STS does, and so must who verifies a token. It gives up
// after half a minute if nobody can. A cache in front of the documents may show the former ones for longer.
func (s Spec) await(ctx context.Context, c *aws.Client, d issuer.Documents) error {
	hidden := 0
	return aws.Poll(ctx, "wait until everybody can read the documents of the issuer", func(ctx context.Context) (bool, string, error) {
		differs, err := s.differences(ctx, c, d)
		seen := finding.Words(differs)
		if err != nil {
			seen = err.Error()
		}
		if err != nil || slices.ContainsFunc(differs, unread) {
			if hidden++; hidden >= aws.ConsistencyAttempts {
				return false, seen, &HiddenError{s.Place, s.direct(c), seen}
			}
		}
		return err == nil && len(differs) == 0, seen, nil
	})
}

// unread reports whether a finding says that a document cannot be read.
func unread(f finding.Finding) bool {
	return f.Kind == finding.IssuerDocument && (f.Problem == finding.Missing || f.Problem == finding.Refused)
}

// HiddenError says that not everybody can read an issuer's documents.
type HiddenError struct {
	// Place is where they are written; it has no bucket if somebody else publishes them.
	Place object.Ref
	Own   bool // the issuer's URL is that of the place itself
	Seen  string
}

func (e *HiddenError) Error() string { return e.Seen }

// differences compares what the issuer shows to everybody with its documents. The error says that it did not answer.
func (s Spec) differences(ctx context.Context, c *aws.Client, d issuer.Documents) ([]finding.Finding, error) {
	var shown issuer.Documents
	var out []finding.Finding
	for _, document := range []struct {
		path    string
		content *[]byte
	}{{issuer.ConfigurationPath, &shown.Configuration}, {issuer.KeysPath, &shown.Keys}} {
		status, content, err := s.read(ctx, c, document.path)
		if err != nil {
			return nil, fmt.Errorf("%s/%s: %w", s.Issuer, document.path, err)
		}
		*document.content = content
		switch {
		case status == http.StatusOK:
		case status == http.StatusNotFound:
			out = append(out, finding.Finding{Kind: finding.IssuerDocument, Target: document.path, Problem: finding.Missing})
		case status == http.StatusTooManyRequests || status >= http.StatusInternalServerError:
			return nil, fmt.Errorf("%s/%s: HTTP status %d", s.Issuer, document.path, status)
		default:
			out = append(out, finding.Finding{Kind: finding.IssuerDocument, Target: document.path, Problem: finding.Refused, Found: fmt.Sprint(status)})
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	return d.Differences(shown), nil
}

// direct reports whether the issuer's URL is that of the place itself.
func (s Spec) direct(c *aws.Client) bool {
	return s.Place.Bucket != "" && s.Issuer == object.URL(s.Place, c.Region)
}

// answerLimit is how long an issuer may take to show a document. STS waits for less.
const answerLimit = 10 * time.Second

// read reads a document as somebody without credentials; only a document of status 200 has content. One that is too large for a document has a
// content that is none. The error says that there was no answer.
func (s Spec) read(ctx context.Context, c *aws.Client, path string) (status int, content []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, answerLimit)
	defer cancel()
	var answer io.ReadCloser
	if s.direct(c) {
		status, answer, err = object.OpenAsAnybody(ctx, c, s.at(path))
	} else {
		status, answer, err = s.open(ctx, c, path)
	}
	if err != nil {
		return 0, nil, err
	}
	defer answer.Close() //nolint:errcheck // read only
	if status != http.StatusOK {
		return status, nil, nil
	}
	content, err = foreign.ReadAll(answer, documentLimit, "the issuer")
	var large *foreign.TooMuchError
	if errors.As(err, &large) {
		return status, nil, nil
	}
	return status, content, err
}

// open asks the server of an issuer that is not a bucket.
func (s Spec) open(ctx context.Context, c *aws.Client, path string) (int, io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.Issuer+"/"+path, http.NoBody)
	if err != nil {
		return 0, nil, err
	}
	answer, err := c.Web.Do(r)
	if err != nil {
		return 0, nil, err
	}
	return answer.StatusCode, answer.Body, nil
}
