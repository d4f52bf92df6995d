package pki

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
)

// Options are for Bootstrap, Rotate and LoadRef. The first group only describes the store in the
// Ref.
type Options struct {
	Store, Prefix, KMSKeyID, Region string

	Generations Generations   // LoadRef reads them from the key store instead
	CAValidity  time.Duration // zero means DefaultCAValidity
	Authorities Authorities   // that are given; the others are generated
}

// commonName returns the common name of a generation of an authority.
func commonName(k Kind, generation int) string {
	name := map[Kind]string{
		KindKubernetesCA: "kubernetes-ca", KindEtcdCA: "etcd-ca", KindFrontProxyCA: "kubernetes-front-proxy-ca",
	}[k]
	if generation > 1 {
		name += "-" + strconv.Itoa(generation)
	}
	return name
}

// Bootstrap makes a cluster's authorities and keys, or adopts those in the store, and returns the
// reference to them.
//
// After an interruption at any moment it can be run again. It first creates all private keys, which
// the store never overwrites, and then derives the public parts from the stored keys, so a key is
// never made twice. A store with a public part but without its key has lost the key, and Bootstrap
// returns an error instead of making a new one. Keys of generations that are not wanted are an
// error, too.
func Bootstrap(ctx context.Context, s Store, cluster string, now time.Time, rand io.Reader, o Options) (Ref, error) {
	return establish(ctx, s, cluster, now, rand, o, nil)
}

// Rotate brings a cluster from one set of generations to that of the options: it makes new ones,
// and deletes those no longer wanted from the store, including their private keys. See
// [CheckGenerations] for what may follow what. Like Bootstrap it can be interrupted and run again.
func Rotate(ctx context.Context, s Store, cluster string, from Generations, now time.Time, rand io.Reader, o Options) (Ref, error) {
	return establish(ctx, s, cluster, now, rand, o, &from)
}

func establish(ctx context.Context, s Store, cluster string, now time.Time, rand io.Reader, o Options, from *Generations) (Ref, error) {
	b := &bootstrap{store: s, now: now, rand: ConcurrentRand(rand), opts: o, from: from, values: map[string][]byte{}}
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

// LoadRef reads the public part of a cluster's keys from its store and fetches no private key. The
// error wraps ErrNotFound if a public part is missing.
func LoadRef(ctx context.Context, s Store, cluster string, o Options) (Ref, error) {
	fail := func(err error) (Ref, error) { return Ref{}, fmt.Errorf("certificates of cluster %s: %w", cluster, err) }
	stored, err := s.Get(ctx, NameGenerations)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fail(fmt.Errorf("read %s: %w", NameGenerations, err))
	}
	if o.Generations, err = ParseGenerations(string(stored)); err != nil {
		return fail(err)
	}
	public := slices.DeleteFunc(Names(o.Generations), func(name string) bool { return Secret(name) || name == NameGenerations })
	values, err := GetAll(ctx, s, public)
	if err != nil {
		return fail(err)
	}
	return newRef(cluster, o, values), nil
}

// GetAll reads values from a store, many at a time, and returns them by name. The error wraps
// ErrNotFound if one is missing.
func GetAll(ctx context.Context, s Store, names []string) (map[string][]byte, error) {
	values := make(map[string][]byte, len(names))
	var mu sync.Mutex
	g, gctx := parallel.WithContext(ctx)
	for _, name := range names {
		g.Go(func() error {
			v, err := s.Get(gctx, name)
			if err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
			mu.Lock()
			defer mu.Unlock()
			values[name] = v
			return nil
		})
	}
	return values, g.Wait()
}

// Missing returns the Names that the store does not have.
func Missing(ctx context.Context, s Store, g Generations) ([]string, error) {
	present, err := s.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the key store: %w", err)
	}
	return slices.DeleteFunc(Names(g), func(n string) bool { return slices.Contains(present, n) }), nil
}

// remove deletes entries in the order of their removal.
func remove(ctx context.Context, s Store, names []string) error {
	for _, batch := range InOrderOfRemoval(names) {
		g, ctx := parallel.WithContext(ctx)
		for _, name := range batch {
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
	ref := Ref{
		Cluster: cluster, Store: o.Store, Prefix: o.Prefix, KMSKeyID: o.KMSKeyID, Region: o.Region,
		Generations: o.Generations.full(), KubernetesCAChain: o.Authorities.Chain(o.Generations),
	}
	for _, k := range Kinds() {
		bundle := ref.bundle(k)
		if bundle == nil {
			continue
		}
		for _, n := range o.Generations.Of(k) {
			*bundle += string(bytes.TrimSpace(values[PublicName(k, n)])) + "\n"
		}
	}
	return ref
}

type bootstrap struct {
	store Store
	now   time.Time
	rand  io.Reader
	opts  Options
	from  *Generations // nil if there were none before

	mu      sync.Mutex
	present []string
	values  map[string][]byte
}

// run makes what is missing. It records the generations before the very first key, and later
// between making new keys and deleting old ones. So after an interruption the store records either
// the earlier or the wanted generations, and has every key of them.
func (b *bootstrap) run(ctx context.Context) error {
	var err error
	if b.present, err = b.store.List(ctx); err != nil {
		return fmt.Errorf("list the key store: %w", err)
	}
	want := b.opts.Generations
	if err := b.checkGiven(ctx); err != nil {
		return err
	}
	stored, recorded, err := b.recorded(ctx)
	if err != nil {
		return err
	}
	if recorded {
		if err := b.checkRecorded(stored); err != nil {
			return err
		}
	} else {
		if err := b.record(ctx, Generations{}); err != nil {
			return err
		}
		stored = want
	}
	if err := b.checkLost(stored, recorded); err != nil {
		return err
	}

	keys, kctx := parallel.WithContext(ctx)
	for _, k := range Kinds() {
		for _, n := range want.Of(k) {
			keys.Go(func() error {
				return b.ensure(kctx, SecretName(k, n), func() ([]byte, error) { return b.newSecret(k, n) })
			})
		}
	}
	if err := keys.Wait(); err != nil {
		return err
	}
	public, pctx := parallel.WithContext(ctx)
	for _, k := range Kinds() {
		for _, n := range want.Of(k) {
			public.Go(func() error { return b.ensurePublic(pctx, k, n) })
		}
	}
	if err := public.Wait(); err != nil {
		return err
	}
	if err := b.record(ctx, stored); err != nil || b.from == nil {
		return err
	}
	return remove(ctx, b.store, Strays(b.present, want))
}

// recorded returns the generations recorded in the store; false if there are none yet.
func (b *bootstrap) recorded(ctx context.Context) (Generations, bool, error) {
	if !slices.Contains(b.present, NameGenerations) {
		first := slices.ContainsFunc(Names(Generations{}), func(n string) bool { return !Secret(n) && b.has(n) })
		return Generations{}, first, nil
	}
	v, err := b.store.Get(ctx, NameGenerations)
	if err != nil {
		return Generations{}, false, fmt.Errorf("read %s: %w", NameGenerations, err)
	}
	g, err := ParseGenerations(string(v))
	return g, true, err
}

// checkRecorded returns an error if the store knows more than the caller: with an old Terraform
// state, the only key that can read a cluster's secrets might be deleted.
func (b *bootstrap) checkRecorded(stored Generations) error {
	for _, k := range Kinds() {
		have, want := stored.Of(k), b.opts.Generations.Of(k)
		if slices.Equal(have, want) || b.from != nil && slices.Equal(have, b.from.Of(k)) {
			continue
		}
		return fmt.Errorf("the key store has generations %s of %s, but %s are wanted: write generations.%s = %s and apply",
			FormatGenerations(have), k, FormatGenerations(want), k, FormatGenerations(have))
	}
	return nil
}

// record writes the generations into the store, unless they are already there.
func (b *bootstrap) record(ctx context.Context, stored Generations) error {
	if stored.Equal(b.opts.Generations) {
		return nil
	}
	if err := b.store.Replace(ctx, NameGenerations, []byte(b.opts.Generations.encode())); err != nil {
		return fmt.Errorf("%s: %w", NameGenerations, err)
	}
	return nil
}

func (b *bootstrap) has(name string) bool { return slices.Contains(b.present, name) }

// checkLost returns an error if there is a public part without its key: keys are stored first, so
// the key has been lost.
func (b *bootstrap) checkLost(stored Generations, recorded bool) error {
	complete := recorded && slices.ContainsFunc(Names(stored), func(n string) bool {
		return n != NameGenerations && !Secret(n) && b.has(n)
	})
	for _, k := range Kinds() {
		for _, n := range b.opts.Generations.Of(k) {
			key, public := SecretName(k, n), PublicName(k, n)
			expected := complete && slices.Contains(stored.Of(k), n) || public != "" && b.has(public)
			if _, given := b.opts.Authorities.Secret(key); expected && !given && !b.has(key) {
				return fmt.Errorf("%s was stored before and is missing: put it back, or delete the other %d entries to start again", key, len(b.present))
			}
		}
	}
	return nil
}

// ensure reads a value, or makes and stores it if there is none.
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
	if !b.has(name) {
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

func (b *bootstrap) newSecret(k Kind, generation int) ([]byte, error) {
	if k == KindEncryption {
		return NewEncryptionKey(b.rand)
	}
	if key, given := b.opts.Authorities.Secret(SecretName(k, generation)); given {
		return key, nil
	}
	_, keyPEM, err := newKey(b.rand)
	return keyPEM, err
}

// ensurePublic makes the public part of a key, and checks that the two match.
func (b *bootstrap) ensurePublic(ctx context.Context, k Kind, generation int) error {
	switch k {
	case KindEncryption:
		name := SecretName(k, generation)
		return checkEncryptionKey(name, b.value(name))
	case KindServiceAccount:
		return b.ensureServiceAccount(ctx, SecretName(k, generation), PublicName(k, generation))
	}
	keyName, certName := SecretName(k, generation), PublicName(k, generation)
	keyPEM := b.value(keyName)
	key, err := parseKey(keyPEM)
	if err != nil {
		return fmt.Errorf("%s: %w", keyName, err)
	}
	if err := b.ensure(ctx, certName, func() ([]byte, error) {
		if given, ok := b.opts.Authorities.certificate(k, generation); ok {
			return given, nil
		}
		return selfSign(commonName(k, generation), key, b.opts.CAValidity, b.now, b.rand)
	}); err != nil {
		return err
	}
	_, err = LoadAuthority(KeyPair{CertPEM: b.value(certName), KeyPEM: keyPEM})
	return err
}

func (b *bootstrap) ensureServiceAccount(ctx context.Context, keyName, publicName string) error {
	want, err := publicPart(keyName, b.value(keyName))
	if err != nil {
		return err
	}
	if err := b.ensure(ctx, publicName, func() ([]byte, error) { return want, nil }); err != nil {
		return err
	}
	return checkPublicPart(keyName, want, publicName, b.value(publicName))
}

func (b *bootstrap) value(name string) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.values[name]
}

// ConcurrentRand makes a random source safe for concurrent use.
func ConcurrentRand(r io.Reader) io.Reader { return &lockedReader{r: r} }

type lockedReader struct {
	mu sync.Mutex
	r  io.Reader
}

func (l *lockedReader) Read(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.r.Read(p)
}
