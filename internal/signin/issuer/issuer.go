// Package issuer is an issuer of OpenID Connect for tests: it signs people in with pages and forms, as issuers do, and
// it can be told to rotate its keys and to sign any claims. It is made of zitadel/oidc.
//
// What may not enter: clusters, and what signs in.
package issuer

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/crypto"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// ClientID is the client that the issuer knows. It has no secret.
const ClientID = "kubernetes"

// Password is the password of every person.
const Password = "correct horse"

// People are the persons that the issuer knows, with their groups.
type People map[string][]string

// GetUserByID implements storage.UserStore.
func (p People) GetUserByID(id string) *storage.User {
	if _, ok := p[id]; !ok {
		return nil
	}
	return &storage.User{ID: id, Username: id, Password: Password, Email: id + "@example.com", EmailVerified: true}
}

// GetUserByUsername implements storage.UserStore.
func (p People) GetUserByUsername(name string) *storage.User { return p.GetUserByID(name) }

// ExampleClientID implements storage.UserStore.
func (p People) ExampleClientID() string { return "service" }

// Issuer is an [http.Handler].
type Issuer struct {
	http.Handler
	url string
	at  *keeper
}

// keeper keeps what the issuer knows: of the example of zitadel/oidc, except keys, claims and clients.
type keeper struct {
	*storage.Storage
	people   People
	lifetime time.Duration

	mu   sync.Mutex
	keys []*storage.Storage // each for the key that it made; the last one signs
}

// New returns an issuer whose URL is url. Its tokens are valid for lifetime.
func New(url string, people People, lifetime time.Duration) *Issuer {
	clients := map[string]*storage.Client{ClientID: storage.NativeClient(ClientID, "http://localhost/")}
	k := &keeper{Storage: storage.NewStorageWithClients(people, clients), people: people, lifetime: lifetime}
	k.keys = []*storage.Storage{k.Storage}
	i := &Issuer{url: url, at: k}
	mux := http.NewServeMux()
	mux.Handle("/", exampleop.SetupServer(url, k, slog.New(slog.DiscardHandler), false))
	mux.HandleFunc("POST /test/rotate", func(http.ResponseWriter, *http.Request) { i.Rotate() })
	mux.HandleFunc("POST /test/sign", func(w http.ResponseWriter, r *http.Request) {
		claims := map[string]any{}
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<16)).Decode(&claims); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		token, err := i.Sign(r.Context(), claims)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprint(w, token)
	})
	i.Handler = mux
	return i
}

// Rotate has the issuer sign with a new key, and publish only that one.
func (i *Issuer) Rotate() {
	k := i.at
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keys = append(k.keys, storage.NewStorageWithClients(k.people, nil))
}

// Sign returns a token with claims over those of a token that is valid for an hour.
func (i *Issuer) Sign(ctx context.Context, claims map[string]any) (string, error) {
	all := map[string]any{"iss": i.url, "aud": []string{ClientID}, "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix()}
	maps.Copy(all, claims)
	key, err := i.at.SigningKey(ctx)
	if err != nil {
		return "", err
	}
	signer, err := op.SignerFromKey(key)
	if err != nil {
		return "", err
	}
	return crypto.Sign(all, signer)
}

func (k *keeper) current() *storage.Storage {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.keys[len(k.keys)-1]
}

// SigningKey implements op.Storage.
func (k *keeper) SigningKey(ctx context.Context) (op.SigningKey, error) {
	return k.current().SigningKey(ctx)
}

// KeySet implements op.Storage.
func (k *keeper) KeySet(ctx context.Context) ([]op.Key, error) { return k.current().KeySet(ctx) }

// SignatureAlgorithms implements op.Storage.
func (k *keeper) SignatureAlgorithms(context.Context) ([]jose.SignatureAlgorithm, error) {
	return []jose.SignatureAlgorithm{jose.RS256}, nil
}

// SetUserinfoFromRequest implements op.CanSetUserinfoFromRequest: an ID token has the person's groups.
func (k *keeper) SetUserinfoFromRequest(ctx context.Context, info *oidc.UserInfo, token op.IDTokenRequest, scopes []string) error {
	if err := k.Storage.SetUserinfoFromRequest(ctx, info, token, scopes); err != nil {
		return err
	}
	info.AppendClaims("groups", k.people[token.GetSubject()])
	return nil
}

// client is a program on a person's computer. It may show a code instead of opening a browser.
type client struct {
	op.Client
	lifetime time.Duration
}

// GetClientByClientID implements op.Storage.
func (k *keeper) GetClientByClientID(ctx context.Context, id string) (op.Client, error) {
	c, err := k.Storage.GetClientByClientID(ctx, id)
	return client{c, k.lifetime}, err
}

// IDTokenUserinfoClaimsAssertion implements op.Client: what is known of the person is in the ID token.
func (client) IDTokenUserinfoClaimsAssertion() bool { return true }

// IDTokenLifetime implements op.Client.
func (c client) IDTokenLifetime() time.Duration { return c.lifetime }

// GrantTypes implements op.Client.
func (client) GrantTypes() []oidc.GrantType {
	return []oidc.GrantType{oidc.GrantTypeCode, oidc.GrantTypeRefreshToken, oidc.GrantTypeDeviceCode}
}
