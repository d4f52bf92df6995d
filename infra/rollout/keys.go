package rollout

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// keyring fetches keys from a cluster's key store when they are first needed,
// and keeps them for the length of one operation.
type keyring struct {
	ref  pki.Ref
	open func(pki.Ref) (pki.Store, error)
	now  func() time.Time
	rand io.Reader

	mu     sync.Mutex
	store  pki.Store
	values map[string][]byte
	admins map[pki.CAName]pki.KeyPair
}

func (e *Engine) keyring(ref pki.Ref) *keyring {
	return &keyring{ref: ref, open: e.Store, now: e.now, rand: &lockedReader{r: e.random()},
		values: map[string][]byte{}, admins: map[pki.CAName]pki.KeyPair{}}
}

// get returns the value stored under name.
func (k *keyring) get(ctx context.Context, name string) ([]byte, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if v, ok := k.values[name]; ok {
		return v, nil
	}
	if k.store == nil {
		store, err := k.open(k.ref)
		if err != nil {
			return nil, fmt.Errorf("opening the key store of cluster %s: %w", k.ref.Cluster, err)
		}
		k.store = store
	}
	v, err := k.store.Get(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("fetching %s of cluster %s: %w", name, k.ref.Cluster, err)
	}
	k.values[name] = v
	return v, nil
}

// render makes the content of a secret file.
func (k *keyring) render(ctx context.Context, s component.Secret) ([]byte, error) {
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

// issue makes a key and a certificate for it.
func (k *keyring) issue(ctx context.Context, ca pki.CAName, r pki.Request) (pki.KeyPair, error) {
	key, err := k.get(ctx, k.ref.IssuingKey(ca))
	if err != nil {
		return pki.KeyPair{}, err
	}
	authority, err := pki.LoadAuthority(pki.KeyPair{CertPEM: []byte(k.ref.Bundle(ca)), KeyPEM: key})
	if err != nil {
		return pki.KeyPair{}, fmt.Errorf("cluster %s: %w", k.ref.Cluster, err)
	}
	return authority.Issue(r, k.now(), k.rand)
}

// admin returns the client certificate this operation identifies itself with:
// a cluster administrator to Kubernetes, any client to etcd.
func (k *keyring) admin(ctx context.Context, ca pki.CAName) (pki.KeyPair, error) {
	k.mu.Lock()
	pair, ok := k.admins[ca]
	k.mu.Unlock()
	if ok {
		return pair, nil
	}
	r := pki.Request{CommonName: "k8s-from-scratch", Client: true, Validity: adminValidity}
	if ca == pki.KubernetesCA {
		r.Organizations = []string{"system:masters"}
	}
	pair, err := k.issue(ctx, ca, r)
	if err != nil {
		return pki.KeyPair{}, fmt.Errorf("making a client certificate: %w", err)
	}
	k.mu.Lock()
	k.admins[ca] = pair
	k.mu.Unlock()
	return pair, nil
}

// lockedReader lets goroutines share a random source that is not safe for it.
type lockedReader struct {
	mu sync.Mutex
	r  io.Reader
}

func (l *lockedReader) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.Read(p)
}
