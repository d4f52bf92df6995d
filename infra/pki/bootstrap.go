package pki

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// DefaultEncryptionKeyName is the name of a cluster's first encryption key.
const DefaultEncryptionKeyName = "key-1"

// Options for Bootstrap and LoadRef. The first group only describes the store in the Ref.
type Options struct {
	Store, Prefix, KMSKeyID, Region string

	CAValidity time.Duration // zero means DefaultCAValidity
}

// authorities maps each authority to its common name.
var authorities = []struct {
	name CAName
	cn   string
}{
	{KubernetesCA, "kubernetes-ca"},
	{EtcdCA, "etcd-ca"},
	{FrontProxyCA, "kubernetes-front-proxy-ca"},
}

// Bootstrap creates a cluster's authorities and keys, or adopts what the
// store already has, and returns the reference to them.
//
// It may be interrupted at any instant and started again: all private keys
// are created first, with the store's create-only semantics, and the public
// parts are then derived from the keys as stored. A key is therefore never
// made twice. For the same reason a store that holds a public part but lacks a
// key has lost it, and Bootstrap refuses to make a new one in its place.
func Bootstrap(ctx context.Context, s Store, cluster string, now time.Time, rand io.Reader, o Options) (Ref, error) {
	b := &bootstrap{store: s, now: now, rand: &lockedReader{r: rand}, opts: o, values: map[string][]byte{}}
	if err := b.run(ctx); err != nil {
		return Ref{}, fmt.Errorf("keys of cluster %s: %w", cluster, err)
	}
	ref := newRef(cluster, o, b.values)
	if o.Store == StoreState {
		ref.Keys = map[string]string{}
		for name, v := range b.values {
			if Secret(name) {
				ref.Keys[name] = string(v)
			}
		}
	}
	return ref, nil
}

// LoadRef reads the public part of a bootstrapped cluster back from its
// store, without fetching a single private key. It returns an error that wraps
// ErrNotFound when a public part is missing.
func LoadRef(ctx context.Context, s Store, cluster string, o Options) (Ref, error) {
	values := map[string][]byte{}
	var mu sync.Mutex
	g, ctx := errgroup.WithContext(ctx)
	for _, name := range Names() {
		if Secret(name) {
			continue
		}
		g.Go(func() error {
			v, err := s.Get(ctx, name)
			if err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			values[name] = v
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return Ref{}, fmt.Errorf("certificates of cluster %s: %w", cluster, err)
	}
	return newRef(cluster, o, values), nil
}

// Missing returns which of Names the store does not have.
func Missing(ctx context.Context, s Store) ([]string, error) {
	present, err := s.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the key store: %w", err)
	}
	return slices.DeleteFunc(Names(), func(n string) bool { return slices.Contains(present, n) }), nil
}

// Purge deletes every one of Names; what is already gone is no error. Public
// parts go first, so that an interrupted Purge can be followed by a Bootstrap.
func Purge(ctx context.Context, s Store) error {
	for _, secret := range []bool{false, true} {
		g, ctx := errgroup.WithContext(ctx)
		for _, name := range Names() {
			if Secret(name) != secret {
				continue
			}
			g.Go(func() error {
				if err := s.Delete(ctx, name); err != nil && !errors.Is(err, ErrNotFound) {
					return fmt.Errorf("delete %s: %w", name, err)
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

func newRef(cluster string, o Options, values map[string][]byte) Ref {
	return Ref{
		Cluster: cluster, Store: o.Store, Prefix: o.Prefix, KMSKeyID: o.KMSKeyID, Region: o.Region,
		KubernetesCA:            string(values[CertKubernetesCA]),
		EtcdCA:                  string(values[CertEtcdCA]),
		FrontProxyCA:            string(values[CertFrontProxyCA]),
		ServiceAccountPublicKey: string(values[PublicServiceAccount]),
		EncryptionKeyName:       DefaultEncryptionKeyName,
	}
}

type bootstrap struct {
	store Store
	now   time.Time
	rand  io.Reader
	opts  Options

	mu      sync.Mutex
	present []string
	values  map[string][]byte
}

func (b *bootstrap) run(ctx context.Context) error {
	present, err := b.store.List(ctx)
	if err != nil {
		return fmt.Errorf("list the key store: %w", err)
	}
	b.present = present
	if err := b.checkLost(); err != nil {
		return err
	}

	keys, kctx := errgroup.WithContext(ctx)
	for _, name := range Names() {
		if Secret(name) {
			keys.Go(func() error { return b.ensure(kctx, name, func() ([]byte, error) { return b.newSecret(name) }) })
		}
	}
	if err := keys.Wait(); err != nil {
		return err
	}

	public, pctx := errgroup.WithContext(ctx)
	for _, ca := range authorities {
		public.Go(func() error { return b.ensureCertificate(pctx, ca.name, ca.cn) })
	}
	public.Go(func() error { return b.ensureServiceAccount(pctx) })
	if err := public.Wait(); err != nil {
		return err
	}
	return b.checkEncryptionKey()
}

// checkLost refuses to go on when a public part is there and a key is not:
// keys are always stored first, so the key has been there and is gone.
func (b *bootstrap) checkLost() error {
	has := func(n string) bool { return slices.Contains(b.present, n) }
	if !slices.ContainsFunc(Names(), func(n string) bool { return !Secret(n) && has(n) }) {
		return nil
	}
	for _, n := range Names() {
		if Secret(n) && !has(n) {
			return fmt.Errorf("%s was stored once and is gone: put it back, or delete the other %d entries to start anew", n, len(b.present))
		}
	}
	return nil
}

// ensure reads a value, or makes and stores it when there is none.
func (b *bootstrap) ensure(ctx context.Context, name string, create func() ([]byte, error)) error {
	value, err := b.createOrAdopt(ctx, name, create)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.values[name] = value
	return nil
}

func (b *bootstrap) createOrAdopt(ctx context.Context, name string, create func() ([]byte, error)) ([]byte, error) {
	if !slices.Contains(b.present, name) {
		value, err := create()
		if err != nil {
			return nil, err
		}
		switch err := b.store.Create(ctx, name, value); {
		case err == nil:
			return value, nil
		case !errors.Is(err, ErrExists):
			return nil, fmt.Errorf("store: %w", err)
		}
	}
	value, err := b.store.Get(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return value, nil
}

func (b *bootstrap) newSecret(name string) ([]byte, error) {
	if name == KeyEncryption {
		return NewEncryptionKey(b.rand)
	}
	_, keyPEM, err := newKey(b.rand)
	return keyPEM, err
}

func (b *bootstrap) ensureCertificate(ctx context.Context, ca CAName, commonName string) error {
	keyPEM := b.value(KeyName(ca))
	key, err := parseKey(keyPEM)
	if err != nil {
		return fmt.Errorf("%s: %w", KeyName(ca), err)
	}
	if err := b.ensure(ctx, CertName(ca), func() ([]byte, error) {
		return selfSign(commonName, key, b.opts.CAValidity, b.now, b.rand)
	}); err != nil {
		return err
	}
	_, err = LoadAuthority(KeyPair{CertPEM: b.value(CertName(ca)), KeyPEM: keyPEM})
	return err
}

func (b *bootstrap) ensureServiceAccount(ctx context.Context) error {
	key, err := parseKey(b.value(KeyServiceAccount))
	if err != nil {
		return fmt.Errorf("%s: %w", KeyServiceAccount, err)
	}
	want, err := publicKeyPEM(key)
	if err != nil {
		return err
	}
	if err := b.ensure(ctx, PublicServiceAccount, func() ([]byte, error) { return want, nil }); err != nil {
		return err
	}
	if !bytes.Equal(bytes.TrimSpace(want), bytes.TrimSpace(b.value(PublicServiceAccount))) {
		return fmt.Errorf("%s does not belong to %s", PublicServiceAccount, KeyServiceAccount)
	}
	return nil
}

func (b *bootstrap) checkEncryptionKey() error {
	raw, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(b.value(KeyEncryption))))
	if err != nil || len(raw) != encryptionKeyBytes {
		return fmt.Errorf("%s is not %d bytes in base64", KeyEncryption, encryptionKeyBytes)
	}
	return nil
}

func (b *bootstrap) value(name string) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.values[name]
}

// lockedReader lets several goroutines share a random source that is not made for it.
type lockedReader struct {
	mu sync.Mutex
	r  io.Reader
}

func (l *lockedReader) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.Read(p)
}
