package iamapi

import (
	"errors"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

var issuerActions = map[string]action{
	"CreateOpenIDConnectProvider": of(createIssuer),
	"GetOpenIDConnectProvider":    of(getIssuer),
	"ListOpenIDConnectProviders":  of(listIssuers),
	"ListOpenIDConnectProviderTags": of(func(s *Service, in *issuerRequest) (any, error) {
		i, err := s.issuer(in.ARN)
		if err != nil {
			return nil, err
		}
		items, end, err := cut(in.pages, tagItems(i.Tags))
		return struct {
			Tags []tag `xml:"Tags>member"`
			page
		}{items, end}, err
	}),
	// Who deletes one that does not exist gets no error.
	"DeleteOpenIDConnectProvider": of(func(s *Service, in *issuerRequest) (any, error) {
		_, err := s.Directory.DeleteIssuer(in.ARN)
		return struct{}{}, err
	}),
	"AddClientIDToOpenIDConnectProvider": changeIssuer(func(in *issuerRequest, i *iam.Issuer) error {
		if in.ClientID == "" {
			return wire.Refuse("ValidationError", "A client id is needed.")
		}
		if !slices.Contains(i.ClientIDs, in.ClientID) {
			i.ClientIDs = append(i.ClientIDs, in.ClientID)
		}
		return nil
	}),
	"RemoveClientIDFromOpenIDConnectProvider": changeIssuer(func(in *issuerRequest, i *iam.Issuer) error {
		i.ClientIDs = slices.DeleteFunc(i.ClientIDs, func(id string) bool { return id == in.ClientID })
		return nil
	}),
	"UpdateOpenIDConnectProviderThumbprint": changeIssuer(func(in *issuerRequest, i *iam.Issuer) error {
		if i.Thumbprints = in.ThumbprintList.Members; len(i.Thumbprints) == 0 {
			return iam.InputError("Thumbprint list must contain at least one entry.")
		}
		return nil
	}),
	"TagOpenIDConnectProvider": changeIssuer(func(in *issuerRequest, i *iam.Issuer) error {
		i.Tags = maps.Clone(i.Tags)
		if i.Tags == nil {
			i.Tags = map[string]string{}
		}
		maps.Copy(i.Tags, in.byKey())
		return nil
	}),
	"UntagOpenIDConnectProvider": changeIssuer(func(in *issuerRequest, i *iam.Issuer) error {
		i.Tags = maps.Clone(i.Tags)
		maps.DeleteFunc(i.Tags, func(key, _ string) bool { return slices.Contains(in.TagKeys.Members, key) })
		return nil
	}),
}

type issuerRequest struct {
	pages
	tags
	ARN            string `query:"OpenIDConnectProviderArn"`
	URL            string `query:"Url"`
	ClientID       string
	ClientIDList   members
	ThumbprintList members
	TagKeys        members
}

type members struct {
	Members []string `query:"member"`
}

func (s *Service) issuer(arn string) (iam.Issuer, error) {
	if s.Hidden != nil && s.Hidden(arn) {
		return iam.Issuer{}, noIssuer(arn)
	}
	for _, i := range s.Directory.Issuers() {
		if i.ARN == arn {
			return i, nil
		}
	}
	return iam.Issuer{}, noIssuer(arn)
}

func noIssuer(arn string) error { return noSuch("OpenIDConnect Provider not found for arn %s", arn) }

func changeIssuer(change func(in *issuerRequest, i *iam.Issuer) error) action {
	return of(func(s *Service, in *issuerRequest) (any, error) {
		if _, err := s.issuer(in.ARN); err != nil {
			return nil, err
		}
		err := s.Directory.ChangeIssuer(in.ARN, func(i *iam.Issuer) error { return change(in, i) })
		return struct{}{}, refusal(err, "OpenIDConnect Provider", in.ARN)
	})
}

func createIssuer(s *Service, in *issuerRequest) (any, error) {
	i := iam.Issuer{
		URL: in.URL, Created: s.Now(), ClientIDs: in.ClientIDList.Members, Thumbprints: in.ThumbprintList.Members, Tags: in.byKey(),
	}
	if err := i.Check(); err != nil {
		return nil, refusal(err, "Provider", in.URL)
	}
	at, err := url.Parse(in.URL)
	if err != nil || at.Port() != "" {
		return nil, wire.Refuse("InvalidInput", "Invalid Open ID Connect Provider URL.")
	}
	if _, known := s.Directory.IssuerOf(in.URL); len(i.Thumbprints) == 0 && !known {
		s.mu.Unlock() // a server that does not answer holds up nobody else
		t, err := s.Thumbprint(at)
		s.mu.Lock()
		if err != nil {
			return nil, wire.Refuse("OpenIdIdpCommunicationError", "Could not connect to %s", in.URL)
		}
		i.Thumbprints = []string{t}
	}
	if i, err = s.Directory.MakeIssuer(i); errors.Is(err, iam.ErrExists) {
		return nil, wire.RefuseWith(409, "EntityAlreadyExists", "Provider with url %s already exists.", in.URL)
	} else if err != nil {
		return nil, refusal(err, "Provider", in.URL)
	}
	if s.MadeIssuer != nil {
		s.MadeIssuer(i.ARN)
	}
	return struct {
		ARN  string `xml:"OpenIDConnectProviderArn"`
		Tags []tag  `xml:"Tags>member"`
	}{i.ARN, tagItems(i.Tags)}, nil
}

func getIssuer(s *Service, in *issuerRequest) (any, error) {
	i, err := s.issuer(in.ARN)
	if err != nil {
		return nil, err
	}
	return struct {
		URL         string   `xml:"Url"`
		ClientIDs   []string `xml:"ClientIDList>member"`
		Thumbprints []string `xml:"ThumbprintList>member"`
		CreateDate  *time.Time
		Tags        []tag `xml:"Tags>member"`
	}{strings.TrimPrefix(i.URL, "https://"), i.ClientIDs, i.Thumbprints, dated(i.Created), tagItems(i.Tags)}, nil
}

func listIssuers(s *Service, _ *struct{}) (any, error) {
	type item struct {
		ARN string `xml:"Arn"`
	}
	var items []item
	for _, i := range s.Directory.Issuers() {
		items = append(items, item{i.ARN})
	}
	return struct {
		List []item `xml:"OpenIDConnectProviderList>member"`
	}{items}, nil
}
