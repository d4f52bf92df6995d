package fleet

import (
	"crypto/rand"
	"errors"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// TestAccessClosed: a client that is asked for after Close is not made, since nobody would close
// it.
func TestAccessClosed(t *testing.T) {
	store := pki.NewMemoryStore(nil)
	ref, err := pki.Bootstrap(t.Context(), store, "demo", time.Now(), rand.Reader, pki.Options{Store: pki.StoreSSM})
	if err != nil {
		t.Fatal(err)
	}
	f := &Fleet{Pool: remote.NewPool(remote.Config{}), Store: func(pki.Ref) (pki.Store, error) { return store, nil }}
	a, m := f.Access(ref), f.Machine(Target{Host: remote.Host{Name: "controller-0"}})
	ask := func() (errs []error) {
		_, err := a.API(t.Context(), "https://192.0.2.1:6443")
		_, ofMachine := a.APIServer(t.Context(), m)
		_, ofMember := a.MemberFrom(t.Context(), m, "https://192.0.2.1:2379")
		return []error{err, ofMachine, ofMember}
	}
	if err := errors.Join(ask()...); err != nil || len(a.servers) != 2 || len(a.members) != 1 {
		t.Fatalf("%d clients of API servers, %d of members, %v", len(a.servers), len(a.members), err)
	}
	a.Close()
	for _, err := range ask() {
		if !errors.Is(err, errAccessClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
}
