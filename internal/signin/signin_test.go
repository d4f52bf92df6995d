package signin_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/signin"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/signin/issuer"
)

// world is an issuer, and a person with a browser.
type world struct {
	*issuer.Issuer
	server  *httptest.Server
	browser *http.Client
	request signin.Request
	visits  sync.WaitGroup // of the browser; the test ends after them
	asked   atomic.Int32   // how often the person had to sign in
	brief   atomic.Bool    // a refresh gives no ID token
}

func newWorld(t *testing.T, lifetime time.Duration) *world {
	t.Helper()
	w := &world{}
	w.server = httptest.NewUnstartedServer(http.HandlerFunc(w.answer))
	w.server.StartTLS()
	t.Cleanup(w.server.Close)
	t.Cleanup(w.visits.Wait)
	w.Issuer = issuer.New(w.server.URL, issuer.People{"ada": {"developers"}}, lifetime)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	w.browser = w.server.Client()
	w.browser.Jar = jar
	free, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = free.Close()
	_, port, _ := net.SplitHostPort(free.Addr().String())
	w.request = signin.Request{Issuer: w.server.URL, ClientID: issuer.ClientID, Scopes: append(signin.DefaultScopes(), "groups"), Listen: "localhost:" + port,
		CA:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.server.Certificate().Raw}),
		Cache: filepath.Join(t.TempDir(), "cache"), Browse: func(link string) { w.visits.Go(func() { w.signIn(t, link) }) }, Show: func(string, ...any) {}}
	return w
}

// answer is the issuer's answer, or what another issuer would answer to a refresh: no ID token.
func (w *world) answer(rw http.ResponseWriter, r *http.Request) {
	if !w.brief.Load() || r.PostFormValue("grant_type") != "refresh_token" {
		w.ServeHTTP(rw, r)
		return
	}
	whole := httptest.NewRecorder()
	w.ServeHTTP(whole, r)
	fields := map[string]any{}
	_ = json.Unmarshal(whole.Body.Bytes(), &fields)
	delete(fields, "id_token")
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(fields)
}

// signIn opens a link in the browser, enters name and password, and follows to the end.
func (w *world) signIn(t *testing.T, link string) {
	w.asked.Add(1)
	page := w.get(t, link)
	form := regexp.MustCompile(`name="id" value="([^"]+)"`).FindStringSubmatch(page)
	if form == nil {
		t.Errorf("no form in\n%s", page)
		return
	}
	answer := w.post(t, "/login/username", url.Values{"id": {form[1]}, "username": {"ada"}, "password": {issuer.Password}})
	if !strings.Contains(answer, "Signed in.") {
		t.Errorf("after the sign-in:\n%s", answer)
	}
}

func (w *world) get(t *testing.T, link string) string {
	t.Helper()
	q, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, link, nil)
	if err != nil {
		t.Error(err)
		return ""
	}
	return w.do(t, q)
}

func (w *world) post(t *testing.T, path string, form url.Values) string {
	t.Helper()
	q, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodPost, w.server.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		t.Error(err)
		return ""
	}
	q.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return w.do(t, q)
}

func (w *world) do(t *testing.T, q *http.Request) string {
	t.Helper()
	r, err := w.browser.Do(q)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// claims returns the claims of a token, after its signature was checked.
func (w *world) claims(t *testing.T, token string) map[string]any {
	t.Helper()
	ctx := oidc.ClientContext(t.Context(), w.server.Client())
	provider, err := oidc.NewProvider(ctx, w.server.URL)
	if err != nil {
		t.Fatal(err)
	}
	id, err := provider.Verifier(&oidc.Config{ClientID: issuer.ClientID, SkipExpiryCheck: true}).Verify(ctx, token)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	if err := id.Claims(&out); err != nil {
		t.Fatal(err)
	}
	return out
}

func (w *world) token(t *testing.T) signin.Token {
	t.Helper()
	token, err := signin.Get(t.Context(), w.request)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// TestBrowser signs in once. The token is kept in a file that only its owner reads.
func TestBrowser(t *testing.T) {
	w := newWorld(t, time.Hour)
	token := w.token(t)
	if claims := w.claims(t, token.ID); claims["sub"] != "ada" || fmt.Sprint(claims["groups"]) != "[developers]" {
		t.Errorf("%v", claims)
	}
	if again := w.token(t); again.ID != token.ID || w.asked.Load() != 1 {
		t.Errorf("asked %d times", w.asked.Load())
	}
	files, err := filepath.Glob(w.request.Cache + "/*.json")
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if info, err := os.Stat(files[0]); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info, err)
	}
	var credential struct {
		APIVersion, Kind string
		Status           struct {
			Token               string
			ExpirationTimestamp time.Time
		}
	}
	text, err := token.ExecCredential()
	if err != nil || json.Unmarshal(text, &credential) != nil || credential.Kind != "ExecCredential" || credential.Status.Token != token.ID || credential.Status.ExpirationTimestamp.IsZero() {
		t.Errorf("%s %v", text, err)
	}
}

// TestRenewal has tokens that are valid, but not for as long as a request may take: they are renewed without the
// person, until the issuer refuses.
func TestRenewal(t *testing.T) {
	w := newWorld(t, 50*time.Second)
	first := w.token(t)
	w.Rotate()
	second := w.token(t)
	if second.ID == first.ID || w.asked.Load() != 1 || w.claims(t, second.ID)["sub"] != "ada" {
		t.Errorf("asked %d times; the same: %v", w.asked.Load(), second.ID == first.ID)
	}
	w.brief.Store(true)
	w.token(t)
	w.brief.Store(false)
	if w.asked.Load() != 2 {
		t.Errorf("asked %d times by an issuer whose refresh has no ID token", w.asked.Load())
	}
	w.Issuer = issuer.New(w.server.URL, issuer.People{"ada": nil}, time.Hour) // it does not know the refresh token
	w.token(t)
	if w.asked.Load() != 3 {
		t.Errorf("asked %d times", w.asked.Load())
	}
}

// TestDevice signs in with a code. A second process waits for the first, and asks nobody.
func TestDevice(t *testing.T) {
	w := newWorld(t, time.Hour)
	w.request.Device = true
	shown := regexp.MustCompile(`open (\S+) and enter the code (\S+)$`)
	w.request.Show = func(format string, args ...any) {
		w.asked.Add(1)
		code := shown.FindStringSubmatch(fmt.Sprintf(format, args...))
		if code == nil || !strings.HasPrefix(code[1], w.server.URL) {
			t.Errorf(format, args...)
			return
		}
		w.visits.Go(func() {
			w.post(t, "/device/login", url.Values{"user_code": {code[2]}, "username": {"ada"}, "password": {issuer.Password}})
			w.get(t, w.server.URL+"/device/confirm?action=allowed")
		})
	}
	other := make(chan signin.Token)
	go func() {
		token, err := signin.Get(t.Context(), w.request)
		if err != nil {
			t.Error(err)
		}
		other <- token
	}()
	if token, same := w.token(t), <-other; token.ID != same.ID || w.asked.Load() != 1 {
		t.Errorf("asked %d times", w.asked.Load())
	}
}

// TestRefusals: what cannot work says what to do.
func TestRefusals(t *testing.T) {
	w := newWorld(t, time.Hour)
	for _, tt := range []struct {
		name string
		edit func(r *signin.Request)
		want string
	}{
		{"another authority", func(r *signin.Request) { r.CA = nil }, "asking the issuer what it offers"},
		{"no PEM", func(r *signin.Request) { r.CA = []byte("x") }, "no certificate in PEM"},
		{"a taken port", func(r *signin.Request) { r.Listen = strings.TrimPrefix(w.server.URL, "https://") }, "no place for the browser to come back to"},
		{"a client that the issuer does not know", func(r *signin.Request) { r.ClientID, r.Device = "unknown", true }, "asking " + w.server.URL + " for a code"},
	} {
		r := w.request
		r.Cache = t.TempDir()
		tt.edit(&r)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if _, err := signin.Get(ctx, r); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", tt.name, err)
		}
		cancel()
	}
}
