package cloud

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// Authority answers the questions of the object store about this account: with which key a request
// is signed, and what its caller may do. It speaks the protocol of versitygw's standalone IAM
// service, version 1 (iamapi/private in its module). key signs the questions.
func (a *Account) Authority(key aws.Credentials) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /private/version", question(func(struct{}) (any, *questionError) {
		return map[string]any{"protocol": authorityProtocol, "minClient": authorityProtocol, "accountId": a.cfg.AccountID}, nil
	}))
	mux.HandleFunc("POST /private/derive-signing-key", question(a.deriveSigningKey))
	mux.HandleFunc("POST /private/evaluate-policy", question(a.evaluatePolicy))
	mux.HandleFunc("POST /private/resolve-identity", question(a.resolveIdentity))
	mux.HandleFunc("POST /private/resolve-principals", question(a.resolvePrincipals))
	own := func(id string) (aws.Credentials, bool) { return key, id == key.AccessKeyID }
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Vgw-Private-Protocol", strconv.Itoa(authorityProtocol))
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err == nil {
			_, err = wire.Verify(r, body, own, a.cfg.Clock.Now())
		}
		if err != nil {
			reply(w, http.StatusForbidden, map[string]string{"error": err.Error()})
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		mux.ServeHTTP(w, r)
	})
}

const authorityProtocol = 1

// questionError is an error that the object store tells its own client.
type questionError struct{ code, message string }

var (
	noSuchIdentity = &questionError{"NoSuchIdentity", "no identity has this access key"}
	invalidToken   = &questionError{"InvalidToken", "the session token does not belong to the access key"}
)

// question answers one kind of question.
func question[Q any](answer func(Q) (any, *questionError)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var q Q
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
			reply(w, http.StatusBadRequest, map[string]string{"error": err.Error(), "code": "BadRequest"})
			return
		}
		out, bad := answer(q)
		if bad != nil {
			reply(w, http.StatusForbidden, map[string]string{"error": bad.message, "code": bad.code})
			return
		}
		reply(w, http.StatusOK, out)
	}
}

// credentialsOf returns the credentials of an access key that came with a session token, or without.
func (a *Account) credentialsOf(accessKeyID, token string) (aws.Credentials, *questionError) {
	creds, ok := a.tokens.Credentials(accessKeyID)
	switch {
	case !ok:
		return creds, noSuchIdentity
	case creds.SessionToken != token || a.tokens.Expired(accessKeyID):
		return creds, invalidToken
	}
	return creds, nil
}

type keyQuestion struct {
	AccessKeyID  string `json:"accessKeyId"`
	SessionToken string `json:"sessionToken"`
	Date         string `json:"date"`
	Region       string `json:"region"`
	Service      string `json:"service"`
}

func (a *Account) deriveSigningKey(q keyQuestion) (any, *questionError) {
	creds, bad := a.credentialsOf(q.AccessKeyID, q.SessionToken)
	if bad != nil {
		return nil, bad
	}
	arn := a.tokens.Caller(q.AccessKeyID).ARN
	return map[string]any{"derivedKey": wire.SigningKey(creds.SecretAccessKey, q.Date, q.Region, q.Service), "principalArn": arn}, nil
}

type policyQuestion struct {
	AccessKeyID  string              `json:"accessKeyId"`
	SessionToken string              `json:"sessionToken"`
	Actions      []string            `json:"actions"`
	Resources    []string            `json:"resources"`
	Condition    map[string][]string `json:"condition"`
}

// evaluatePolicy answers for each resource and each action. The policy of a session is part of the
// answer: what it does not allow is denied.
func (a *Account) evaluatePolicy(q policyQuestion) (any, *questionError) {
	if _, bad := a.credentialsOf(q.AccessKeyID, q.SessionToken); bad != nil {
		return nil, bad
	}
	p := a.principal(q.AccessKeyID)
	context := map[string][]string{"aws:RequestedRegion": {a.cfg.Region}}
	maps.Copy(context, q.Condition)
	maps.Copy(context, a.delivered(q.AccessKeyID))
	decisions := make([][]string, len(q.Resources))
	for n, resource := range q.Resources {
		resource = strings.Replace(resource, "arn:aws:", "arn:"+wire.Partition(a.cfg.Region)+":", 1) // the object store knows one partition
		for _, action := range q.Actions {
			decisions[n] = append(decisions[n], decision(p, iam.Demand{Action: action, Resource: resource, Context: context}))
		}
	}
	return map[string]any{"decisions": decisions, "principalArn": p.ARN}, nil
}

func decision(p iam.Principal, d iam.Demand) string {
	var denied *iam.DeniedError
	switch err := p.Authorize([]iam.Demand{d}); {
	case err == nil:
		return "allow"
	case errors.As(err, &denied) && denied.ByDefault():
		return "no_match" // a bucket's policy may allow it
	}
	return "deny"
}

type identityQuestion struct {
	AccessKeyIDs []string `json:"accessKeyIds"`
}

func (a *Account) resolveIdentity(q identityQuestion) (any, *questionError) {
	type identity struct {
		Found        bool   `json:"found"`
		Kind         string `json:"kind,omitempty"`
		PrincipalARN string `json:"principalArn,omitempty"`
	}
	found := make([]identity, len(q.AccessKeyIDs))
	for n, id := range q.AccessKeyIDs {
		creds, ok := a.tokens.Credentials(id)
		if !ok {
			continue
		}
		found[n] = identity{Found: true, Kind: "user"}
		found[n].PrincipalARN = a.tokens.Caller(id).ARN
		if creds.SessionToken != "" {
			found[n].Kind = "session"
		}
	}
	return map[string]any{"identities": found}, nil
}

type principalQuestion struct {
	Principals []string `json:"principals"`
}

// resolvePrincipals says which principals of a bucket's policy do not exist.
func (a *Account) resolvePrincipals(q principalQuestion) (any, *questionError) {
	known := map[string]bool{"*": true, a.cfg.AccountID: true, "arn:" + wire.Partition(a.cfg.Region) + ":iam::" + a.cfg.AccountID + ":root": true}
	users, roles := a.identities.List()
	for _, u := range users {
		known[u.ARN] = true
	}
	for _, r := range roles {
		known[r.ARN] = true
	}
	invalid := []string{}
	for _, p := range q.Principals {
		if !known[p] {
			invalid = append(invalid, p)
		}
	}
	return map[string]any{"invalid": invalid}, nil
}
