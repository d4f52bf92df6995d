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
	ask := func() {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if _, err := c.Status(ctx); err == nil {
			t.Error("it answered")
		}
	}
	ask()
	time.Sleep(2 * reconnectDelay) // an attempt may be under way
	asked := dials.Load()
	time.Sleep(4 * reconnectDelay)
	if more := dials.Load() - asked; asked == 0 || more > 0 {
		t.Errorf("%d attempts to connect, %d more when nobody asked", asked, more)
	}
	if ask(); dials.Load() == asked {
		t.Error("it does not connect again")
	}
}
