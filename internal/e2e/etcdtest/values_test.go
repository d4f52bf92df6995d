package etcdtest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/local"
)

// TestUnlike compares more keys than fit into one batch, with large values, and with values that
// differ from the prefix only in its last byte.
func TestUnlike(t *testing.T) {
	p := local.NewPKI(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	m := local.NewMember(t, p, local.EtcdProgram(t), "a")
	m.Start(t, false, m)
	c := m.Client(t, p)
	if err := c.WaitHealthy(ctx, nil); err != nil {
		t.Fatal(err)
	}
	const under, prefix = "/registry/secrets/", "sealed:v1:key-2:"
	want := func(what string, unlike []string, total int) {
		t.Helper()
		got, n, err := c.Unlike(ctx, under, prefix)
		if err != nil || n != total || !slices.Equal(got, unlike) {
			t.Errorf("%s: %q of %d, %v; wanted %q of %d", what, got, n, err, unlike, total)
		}
	}
	want("nothing", nil, 0)

	kv := raw(t, p, m)
	put := func(key, value string) {
		t.Helper()
		if _, err := kv.Put(ctx, key, value); err != nil {
			t.Fatal(err)
		}
	}
	put("/registry/secrets.example/a", "k8s\x00")
	for i := range 1100 {
		put(fmt.Sprintf("%sns/s-%04d", under, i), prefix+"x")
	}
	want("all sealed", nil, 1100)
	put(under+"ns/s-0003", "sealed:v1:key-1:x")
	put(under+"ns/s-0004", "sealed:v1:key-2")
	put(under+"ns/s-0005", prefix)
	put(under+"ns/s-0006", prefix+strings.Repeat("\xff", 1<<20))
	put(under+"ns/s-0500", "sealed:v1:key-2;x")
	put(under+"ns/s-1099", "k8s\x00")
	unlike := []string{under + "ns/s-0003", under + "ns/s-0004", under + "ns/s-0005", under + "ns/s-0500", under + "ns/s-1099"}
	want("some not sealed", unlike, 1100)

	if _, err := kv.Delete(ctx, unlike[1]); err != nil {
		t.Fatal(err)
	}
	got, err := c.NotBeginning(ctx, unlike, "sealed:v1:key-1:")
	if wanted := unlike[2:]; err != nil || !slices.Equal(got, wanted) {
		t.Errorf("not sealed with key-1: %q, %v; wanted %q", got, err, wanted)
	}
}

// raw connects with an unchanged client.
func raw(t *testing.T, p local.PKI, m local.Member) *clientv3.Client {
	t.Helper()
	pair := p.Issue(t, pki.EtcdCA, pki.Request{CommonName: "test", Client: true})
	cert, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(p.Ref.EtcdCA))
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{m.ClientURL}, TLS: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{cert}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}
