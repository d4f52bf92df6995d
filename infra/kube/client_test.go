package kube

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func TestUnanswered(t *testing.T) {
	exchange := func(err error) error {
		return fmt.Errorf("reading: %w", &url.Error{Op: "Get", URL: "https://x:6443", Err: err})
	}
	var number int
	for _, tt := range []struct {
		name string
		err  error
		want bool
	}{
		{"none", nil, false},
		{"refused connection", exchange(&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}), true},
		{"time is over", context.DeadlineExceeded, true},
		{"connection closed", exchange(io.EOF), true},
		{"answer cut off", fmt.Errorf("reading: %w", io.ErrUnexpectedEOF), true},
		{"connection lost", errors.New("unexpected error when reading response body. Please retry. Original error: http2: client connection lost"), true},
		{"not ready", &NotReadyError{Endpoint: "x"}, true},
		{"unavailable", apierrors.NewServiceUnavailable("x"), true},
		{"bad request", apierrors.NewBadRequest("x"), false},
		{"unknown kind", &meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "X"}}, false},
		{"foreign CA", exchange(&tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}), false},
		{"other name", exchange(x509.HostnameError{Certificate: &x509.Certificate{}, Host: "x"}), false},
		{"unusable certificate", exchange(&tls.CertificateVerificationError{Err: errors.New("x509: unhandled critical extension")}), false},
		{"no JSON", json.Unmarshal([]byte("<html>"), &number), false},
		{"another type", json.Unmarshal([]byte(`"a"`), &number), false},
		{"conversion", errors.New("unable to convert object to unstructured"), false},
	} {
		if got := Unanswered(tt.err); got != tt.want {
			t.Errorf("%s: %v, wanted %v (%v)", tt.name, got, tt.want, tt.err)
		}
	}
}

// TestLostAnswers: writes are repeated when their connection is lost, but objects are not made twice.
func TestLostAnswers(t *testing.T) {
	var mu sync.Mutex
	lost := 0
	var bodies []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		bodies = append(bodies, string(body))
		if len(bodies) > lost {
			return
		}
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		_ = conn.Close()
	}))
	defer server.Close()
	client := http.Client{Transport: &bounded{RoundTripper: &http.Transport{}}}
	for _, tt := range []struct {
		method string
		lost   int
		tries  int
	}{
		{http.MethodPatch, 2, 3}, {http.MethodPut, 1, 2}, {http.MethodPost, 1, 1}, {http.MethodPatch, 9, 1 + writeRepetitions},
	} {
		mu.Lock()
		lost, bodies = tt.lost, nil
		mu.Unlock()
		q, err := http.NewRequestWithContext(t.Context(), tt.method, server.URL, strings.NewReader("change"))
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(q)
		if err == nil {
			_ = answer.Body.Close()
		}
		mu.Lock()
		if done := tt.tries > tt.lost; (err == nil) != done || len(bodies) != tt.tries || bodies[len(bodies)-1] != "change" {
			t.Errorf("%s, lost %d times: %v after %q", tt.method, tt.lost, err, bodies)
		}
		mu.Unlock()
	}
}

func TestRefused(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	webhook := &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusBadRequest,
		Message: `admission webhook "policy.example.com" denied the request: no`}}
	for _, tt := range []struct {
		name   string
		err    error
		want   bool
		advice string
	}{
		{"webhook without a code", webhook, true, "let pods with the label"},
		{"admission rule", apierrors.NewForbidden(pods, "x", errors.New("violates PodSecurity")), true, "let pods with the label"},
		{"service account that does not exist yet", apierrors.NewForbidden(pods, "x", errors.New("error looking up service account kube-system/default")), false, ""},
		{"quota", apierrors.NewForbidden(pods, "x", errors.New("exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3")), true,
			"make room in the quotas of namespace kube-system"},
		{"webhook that does not answer", apierrors.NewInternalError(errors.New("failed calling webhook")), false, ""},
	} {
		err := fmt.Errorf("making pod x: %w", tt.err)
		if got := refused(err); got != tt.want {
			t.Errorf("%s: %v, wanted %v", tt.name, got, tt.want)
		} else if got && !strings.HasPrefix(refusalAdvice(err), tt.advice) {
			t.Errorf("%s: %q, wanted %q", tt.name, refusalAdvice(err), tt.advice)
		}
	}
}

// TestTryFullNode checks that a node without room for the trial pod is not judged.
func TestTryFullNode(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
			ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "node-trial-w", UID: "1"},
			Status:     corev1.PodStatus{Phase: corev1.PodFailed, Reason: "OutOfpods"}})
	}))
	defer server.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := &Client{typed: kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL})}
	if err := c.Try(ctx, Trial{Node: "w", Image: "pause"}); !errors.Is(err, ErrNodeFull) {
		t.Errorf("error = %v", err)
	}
}
