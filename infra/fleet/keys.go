package fleet

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/access"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// Keys fetches keys from a cluster's key store when they are first needed and keeps them for one
// operation.
type Keys struct {
	// Ref is the reference to the keys.
	Ref  pki.Ref
	open func(pki.Ref) (pki.Store, error)
	now  func() time.Time
	rand io.Reader

	mu     sync.Mutex
	store  pki.Store
	values map[string][]byte
	admins map[pki.CAName]pki.KeyPair
}

// Keys returns the keys behind a reference. It does no I/O.
func (f *Fleet) Keys(ref pki.Ref) *Keys {
	return &Keys{Ref: ref, open: f.Store, now: f.Now, rand: pki.ConcurrentRand(f.Random()),
		values: map[string][]byte{}, admins: map[pki.CAName]pki.KeyPair{}}
}

// get returns the value stored under name. It asks the store only once.
func (k *Keys) get(ctx context.Context, name string) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if v, ok := k.values[name]; ok {
		return v, nil
	}
	if k.store == nil {
		store, err := k.open(k.Ref)
		if err != nil {
			return nil, fmt.Errorf("opening the key store of cluster %s: %w", k.Ref.Cluster, err)
		}
		k.store = store
	}
	v, err := k.store.Get(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("fetching %s of cluster %s: %w", name, k.Ref.Cluster, err)
	}
	k.values[name] = v
	return v, nil
}

// Fingerprint identifies the value stored under name without revealing it.
func (k *Keys) Fingerprint(ctx context.Context, name string) (string, error) {
	v, err := k.get(ctx, name)
	if err != nil {
		return "", err
	}
	return pki.Fingerprint(v), nil
}

// Render makes the content of a secret file.
func (k *Keys) Render(ctx context.Context, s component.Secret) ([]byte, error) {
	var values [][]byte
	for _, name := range s.Sources {
		v, err := k.get(ctx, name)
		if err != nil {
			return nil, err
		}
		values = append(values, v)
	}
	switch {
	case s.Render != nil:
		return s.Render(values)
	case len(values) != 1:
		return nil, fmt.Errorf("%d values and no way to render them", len(values))
	}
	return values[0], nil
}

// Issue makes a key and a certificate for it.
func (k *Keys) Issue(ctx context.Context, ca pki.CAName, r pki.Request) (pki.KeyPair, error) {
	key, err := k.get(ctx, k.Ref.IssuingKey(ca))
	if err != nil {
		return pki.KeyPair{}, err
	}
	authority, err := pki.LoadAuthority(pki.KeyPair{CertPEM: []byte(k.Ref.ServerBundle(ca)), KeyPEM: key})
	if err != nil {
		return pki.KeyPair{}, fmt.Errorf("cluster %s: %w", k.Ref.Cluster, err)
	}
	return authority.Issue(r, k.now(), k.rand)
}

// Admin returns the client certificate of this operation. To Kubernetes it is a cluster
// administrator that no binding is asked about, to etcd any client: an operation must work on a cluster that has no
// bindings yet, and make those anew that somebody has deleted. The certificate never leaves this process.
func (k *Keys) Admin(ctx context.Context, ca pki.CAName) (pki.KeyPair, error) {
	k.mu.Lock()
	pair, ok := k.admins[ca]
	k.mu.Unlock()
	if ok {
		return pair, nil
	}
	r := pki.Request{CommonName: "k8s-from-scratch", Client: true, Validity: adminValidity}
	if ca == pki.KubernetesCA {
		r.Organizations = []string{access.Masters}
	}
	pair, err := k.Issue(ctx, ca, r)
	if err != nil {
		return pki.KeyPair{}, fmt.Errorf("making a client certificate: %w", err)
	}
	k.mu.Lock()
	k.admins[ca] = pair
	k.mu.Unlock()
	return pair, nil
}
