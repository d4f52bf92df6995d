package signin

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
)

// ask has the person sign in.
func (s *session) ask(ctx context.Context) (kept, error) {
	way := s.browser
	if s.Device {
		way = s.device
	}
	token, err := way(ctx)
	if err != nil {
		return kept{}, err
	}
	return s.verify(ctx, token)
}

// device is the device authorization grant (RFC 8628): the person enters a code on any device.
func (s *session) device(ctx context.Context) (*oauth2.Token, error) {
	if s.config.Endpoint.DeviceAuthURL == "" {
		return nil, fmt.Errorf("%s offers no sign-in with a code: leave out -device", s.Issuer)
	}
	code, err := s.config.DeviceAuth(s.with(ctx))
	if err != nil {
		return nil, fmt.Errorf("asking %s for a code: %w", s.Issuer, err)
	}
	s.Show("To sign in, open %s and enter the code %s", foreign.Text(code.VerificationURI), foreign.Text(code.UserCode))
	token, err := s.config.DeviceAccessToken(s.with(ctx), code)
	if err != nil {
		return nil, fmt.Errorf("waiting for the sign-in at %s: %w", s.Issuer, err)
	}
	return token, nil
}

// browser is the authorization code grant with a proof key (RFC 7636), for programs on a person's computer (RFC 8252).
func (s *session) browser(ctx context.Context) (*oauth2.Token, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Listen)
	if err != nil {
		return nil, fmt.Errorf("no place for the browser to come back to: %w", err)
	}
	s.config.RedirectURL = "http://" + s.Listen + "/"
	state, proof := rand.Text(), oauth2.GenerateVerifier()
	s.nonce = rand.Text()

	type answer struct {
		code string
		err  error
	}
	answers := make(chan answer, 1)
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		v := q.URL.Query()
		var a answer
		switch {
		case v.Get("state") != state: // a request of something else on this computer
			http.Error(w, "This is not the end of a sign-in.", http.StatusBadRequest)
			return
		case v.Get("code") == "":
			a.err = fmt.Errorf("%s refused: %s %s", s.Issuer, foreign.Text(v.Get("error")), foreign.Text(v.Get("error_description")))
			http.Error(w, "The issuer refused. The terminal says why.", http.StatusForbidden)
		default:
			a.code = v.Get("code")
			_, _ = w.Write([]byte("Signed in. You can close this window.\n"))
		}
		select {
		case answers <- a:
		default:
		}
	})}
	go func() { _ = server.Serve(listener) }()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
	}()

	url := s.config.AuthCodeURL(state, oauth2.S256ChallengeOption(proof), oidc.Nonce(s.nonce), oauth2.AccessTypeOffline)
	s.Show("To sign in, open %s", url)
	if s.Browse != nil {
		s.Browse(url)
	}
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the sign-in at %s: %w", s.Issuer, context.Cause(ctx))
	case a := <-answers:
		if a.err != nil {
			return nil, a.err
		}
		token, err := s.config.Exchange(s.with(ctx), a.code, oauth2.VerifierOption(proof))
		if err != nil {
			return nil, fmt.Errorf("redeeming the code of %s: %w", s.Issuer, err)
		}
		return token, nil
	}
}
