package cloud

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// Amazon ECR, as far as a node needs it: tokens, and pulls with them.

// ecrLifetime is how long a token is valid.
// https://docs.aws.amazon.com/AmazonECR/latest/APIReference/API_GetAuthorizationToken.html
const ecrLifetime = 12 * time.Hour

// ecrTokens are the tokens that were given out: until when, and to which access key.
type ecrTokens struct {
	mu    sync.Mutex
	known map[string]ecrToken
}

type ecrToken struct {
	key   string
	until time.Time
}

// ECRActions are the actions of ECR that are served.
func ECRActions() []string { return []string{"GetAuthorizationToken"} }

// ecrHost is the name of the account's registry.
func (a *Account) ecrHost() string {
	return fmt.Sprintf("%s.dkr.ecr.%s.amazonaws.com", a.cfg.AccountID, a.cfg.Region)
}

// serveECR runs an action of ECR.
func (a *Account) serveECR(action string, body []byte, accessKeyID string) (any, error) {
	if action != "GetAuthorizationToken" {
		return nil, wire.Refuse("UnknownOperationException", "The operation %s is not known here.", action)
	}
	var in struct {
		RegistryIDs []string `json:"registryIds"`
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, wire.Refuse("SerializationException", "The request cannot be read: %v", err)
	}
	secret := make([]byte, 32)
	if _, err := io.ReadFull(a.cfg.Rand, secret); err != nil {
		return nil, err
	}
	password, until := hex.EncodeToString(secret), a.cfg.Clock.Now().Add(ecrLifetime)
	a.ecr.mu.Lock()
	defer a.ecr.mu.Unlock()
	if a.ecr.known == nil {
		a.ecr.known = map[string]ecrToken{}
	}
	a.ecr.known[password] = ecrToken{accessKeyID, until}
	type authorization struct {
		Token    string `json:"authorizationToken"`
		Expires  int64  `json:"expiresAt"`
		Endpoint string `json:"proxyEndpoint"`
	}
	return struct {
		Data []authorization `json:"authorizationData"`
	}{[]authorization{{base64.StdEncoding.EncodeToString([]byte("AWS:" + password)), until.Unix(), "https://" + a.ecrHost()}}}, nil
}

// repository is in the path of a manifest or a blob.
var repository = regexp.MustCompile(`^/v2/(.+)/(manifests|blobs)/`)

// Registry returns a handler that serves images, those of ECR only to whoever has a token and may pull from the
// repository. It is the mirror of registries: containerd names the registry that it means in the parameter ns.
// https://docs.aws.amazon.com/AmazonECR/latest/userguide/registry_auth.html
func (a *Account) Registry(images http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.URL.Query().Get("ns")
		if !strings.Contains(host, ".dkr.ecr.") {
			images.ServeHTTP(w, r)
			return
		}
		token, ok := a.ecrLogin(r)
		if !ok {
			w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Basic realm="https://%s/",service="ecr.amazonaws.com"`, host))
			refuseImage(w, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
			return
		}
		if host != a.ecrHost() {
			refuseImage(w, http.StatusForbidden, "DENIED", "the repositories of "+host+" are not those of this account")
			return
		}
		if m := repository.FindStringSubmatch(r.URL.Path); m != nil {
			action := map[string]string{"manifests": "ecr:BatchGetImage", "blobs": "ecr:GetDownloadUrlForLayer"}[m[2]]
			arn := fmt.Sprintf("arn:%s:ecr:%s:%s:repository/%s", wire.Partition(a.cfg.Region), a.cfg.Region, a.cfg.AccountID, m[1])
			demand := iam.Demand{Action: action, Resource: arn, Context: map[string][]string{"aws:RequestedRegion": {a.cfg.Region}}}
			if err := a.principal(token.key).Authorize([]iam.Demand{demand}); err != nil {
				refuseImage(w, http.StatusForbidden, "DENIED", err.Error())
				return
			}
		}
		images.ServeHTTP(w, r)
	})
}

// ecrLogin returns the token of a request that has a valid one.
func (a *Account) ecrLogin(r *http.Request) (ecrToken, bool) {
	user, password, _ := r.BasicAuth()
	a.ecr.mu.Lock()
	defer a.ecr.mu.Unlock()
	token, ok := a.ecr.known[password]
	return token, ok && user == "AWS" && a.cfg.Clock.Now().Before(token.until)
}

// refuseImage answers as a registry does.
// https://github.com/opencontainers/distribution-spec/blob/main/spec.md#error-codes
func refuseImage(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []map[string]string{{"code": code, "message": message}}})
}
