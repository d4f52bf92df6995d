package etcd

import (
	"context"
	"crypto/rand"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// TestSilentMember: a client of a member that does not answer ends its attempts to connect when
// nobody uses it any more, and connects again when somebody does. So nobody needs to close clients
// that are of no use.
func TestSilentMember(t *testing.T) {
	t.Parallel()
	root, err := pki.NewAuthority("etcd-ca", time.Hour, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.LoadAuthority(root)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(pki.Request{CommonName: "x", Client: true}, time.Now(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	var dials atomic.Int32
	c, err := New(Access{Endpoint: "https://192.0.2.1:2379", CA: root.CertPEM, Cert: pair.CertPEM, Key: pair.KeyPEM,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			dials.Add(1)
			return nil, errors.New("refused")
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	// ask asks until there is an attempt to connect.
	ask := func() {
		before := dials.Load()
		for end := time.Now().Add(time.Minute); dials.Load() == before; {
			if time.Now().After(end) {
				t.Fatalf("it does not connect after %d attempts", before)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			if _, err := c.Status(ctx); err == nil {
				t.Error("it answered")
			}
			cancel()
		}
	}
	ask()
	end := time.Now().Add(time.Minute)
	for asked := int32(-1); asked != dials.Load(); time.Sleep(4 * reconnectDelay) {
		if asked = dials.Load(); time.Now().After(end) {
			t.Fatalf("it still connects when nobody asks, %d times", asked)
		}
	}
	ask()
}
