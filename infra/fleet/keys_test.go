package fleet

import (
	"context"
	"crypto/rand"
	"slices"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// TestKeys checks that the store is asked once per key, and that there is one client certificate
// per operation and authority.
func TestKeys(t *testing.T) {
	inner := pki.NewMemoryStore(nil)
	ref, err := pki.Bootstrap(t.Context(), inner, "demo", time.Now(), rand.Reader, pki.Options{Store: pki.StoreSSM})
	if err != nil {
		t.Fatal(err)
	}
	store := &countingStore{Store: inner}
	opened := 0
	f := &Fleet{Store: func(pki.Ref) (pki.Store, error) { opened++; return store, nil }}
	k := f.Keys(ref)
	if opened != 0 || store.gets != 0 {
		t.Error("the store was asked before a key was needed")
	}
	first, err := k.Admin(t.Context(), pki.KubernetesCA)
	if err != nil {
		t.Fatal(err)
	}
	again, err := k.Admin(t.Context(), pki.KubernetesCA)
	if err != nil || !slices.Equal(first.CertPEM, again.CertPEM) {
		t.Errorf("a second identity was made: %v", err)
	}
	if _, err := k.Issue(t.Context(), pki.KubernetesCA, pki.Request{CommonName: "x", Client: true}); err != nil {
		t.Fatal(err)
	}
	if opened != 1 || store.gets != 1 {
		t.Errorf("the store was opened %d times and asked %d times, wanted once", opened, store.gets)
	}
	wanted := pki.Request{CommonName: "k8s-from-scratch", Organizations: []string{"system:masters"}, Client: true}
	if found := pki.Check(first.CertPEM, []byte(ref.KubernetesCA), wanted, time.Now(), 0); len(found) > 0 {
		t.Errorf("administrator: %v", found)
	}
	if end, err := pki.Expiry(first.CertPEM); err != nil || time.Until(end) > adminValidity {
		t.Errorf("the administrator's certificate ends %s, wanted within %s", end, adminValidity)
	}
	etcdAdmin, err := k.Admin(t.Context(), pki.EtcdCA)
	if err != nil {
		t.Fatal(err)
	}
	wanted.Organizations = nil
	if found := pki.Check(etcdAdmin.CertPEM, []byte(ref.EtcdCA), wanted, time.Now(), 0); len(found) > 0 {
		t.Errorf("etcd client: %v", found)
	}
}

type countingStore struct {
	pki.Store
	gets int
}

func (s *countingStore) Get(ctx context.Context, name string) ([]byte, error) {
	s.gets++
	return s.Store.Get(ctx, name)
}
