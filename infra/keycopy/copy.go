// Package keycopy makes encrypted copies of a cluster's keys, and key stores from such copies.
//
// A copy has everything that a cluster keeps in its key store: the keys and certificates of all
// generations, and their order. It is encrypted with age (https://age-encryption.org/v1) for
// recipients, whose identities are kept elsewhere. Where a copy is stored is the caller's business.
//
// It is pure, except that age takes its randomness from the operating system. What may not enter:
// files, networks, AWS. Printing a type of this package, and its errors, show no key.
package keycopy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// ErrOther: the key store has other keys than the copy, or than the reference to it.
var ErrOther = errors.New("the key store has other keys")

// Copy is a copy of a cluster's keys in memory. Printing it shows no key.
type Copy struct {
	Cluster     string
	Generations pki.Generations

	values map[string][]byte // pki.Names(Generations)
}

// String returns the cluster's name and its generations.
func (c *Copy) String() string {
	return fmt.Sprintf("Copy{Cluster: %q, Generations: %v, values: [redacted]}", c.Cluster, c.Generations)
}

// GoString is String, for %#v.
func (c *Copy) GoString() string { return "keycopy." + c.String() }

// LogValue is String, for log/slog.
func (c *Copy) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Of reads the keys to which ref refers. The error wraps ErrOther if the store has other
// certificates or generations than ref: a rotation is under way, or somebody has changed them.
func Of(ctx context.Context, s pki.Store, ref pki.Ref) (*Copy, error) {
	fail := func(err error) (*Copy, error) {
		return nil, fmt.Errorf("copy the keys of cluster %s: %w", ref.Cluster, err)
	}
	stored, err := s.Get(ctx, pki.NameGenerations)
	if err != nil && !errors.Is(err, pki.ErrNotFound) {
		return fail(err)
	}
	g, err := pki.ParseGenerations(string(stored))
	if err != nil {
		return fail(err)
	}
	if !g.Equal(ref.Generations) {
		return fail(fmt.Errorf("%w: its generations differ from the reference", ErrOther))
	}
	values, err := pki.GetAll(ctx, s, pki.Names(g))
	if err != nil {
		return fail(err)
	}
	public := ref.Public()
	for _, name := range pki.Names(g) {
		if !pki.Secret(name) && name != pki.NameGenerations && !same(values[name], []byte(public[name])) {
			return fail(fmt.Errorf("%w: %s differs from the reference", ErrOther, name))
		}
	}
	c := &Copy{Cluster: ref.Cluster, Generations: g, values: values}
	if err := pki.CheckValues(c.Generations, c.values); err != nil {
		return fail(err)
	}
	return c, nil
}

// Name returns the name of an object that holds the copy. It follows from the keys and the order of
// their generations: the same keys have the same name, whoever copies them for whomever. It is a
// digest, from which no key can be found.
func (c *Copy) Name() string {
	h := sha256.New()
	h.Write([]byte("key copy\n"))
	for _, k := range pki.Kinds() {
		fmt.Fprintln(h, k, c.Generations.Of(k))
	}
	for _, name := range slices.Sorted(slices.Values(pki.Names(c.Generations))) {
		if name != pki.NameGenerations {
			v := bytes.TrimSpace(c.values[name])
			fmt.Fprintln(h, name, len(v))
			h.Write(v)
		}
	}
	return hex.EncodeToString(h.Sum(nil)) + Extension
}

// Extension is how the name of a copy ends.
const Extension = ".age"

// Restore writes the copy into a key store that has no other keys. It overwrites nothing, and looks
// at everything before it writes anything. After an interruption it can be run again. The error
// wraps ErrOther if the store has other keys.
//
// Certificates go first: a store with a certificate and without its key is one in which
// [pki.Bootstrap] makes no new keys. So what an interrupted Restore leaves cannot become a cluster
// with keys of two origins.
func (c *Copy) Restore(ctx context.Context, s pki.Store) error {
	if err := c.restore(ctx, s); err != nil {
		return fmt.Errorf("restore the keys of cluster %s: %w", c.Cluster, err)
	}
	return nil
}

func (c *Copy) restore(ctx context.Context, s pki.Store) error {
	present, err := s.List(ctx)
	if err != nil {
		return fmt.Errorf("list the key store: %w", err)
	}
	var missing []string
	names := pki.Names(c.Generations)
	for _, name := range names {
		if !slices.Contains(present, name) {
			missing = append(missing, name)
		} else if err := c.matches(ctx, s, name); err != nil {
			return err
		}
	}
	for _, name := range pki.Owned(present) {
		if name != pki.NameOwner && !slices.Contains(names, name) {
			return fmt.Errorf("%w: it has %s, which the copy lacks", ErrOther, name)
		}
	}
	// The order of generations first, then certificates, then keys.
	var order [3][]string
	for _, name := range missing {
		batch := 1
		if name == pki.NameGenerations {
			batch = 0
		} else if pki.Secret(name) {
			batch = 2
		}
		order[batch] = append(order[batch], name)
	}
	for _, batch := range order {
		all, gctx := parallel.WithContext(ctx)
		for _, name := range batch {
			all.Go(func() error {
				err := s.Create(gctx, name, c.values[name])
				if errors.Is(err, pki.ErrExists) { // also when the first answer was lost
					return c.matches(gctx, s, name)
				}
				return err
			})
		}
		if err := all.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// matches returns ErrOther unless the store has the copy's value.
func (c *Copy) matches(ctx context.Context, s pki.Store, name string) error {
	v, err := s.Get(ctx, name)
	if err != nil {
		return err
	}
	if name == pki.NameGenerations {
		if g, err := pki.ParseGenerations(string(v)); err != nil || !g.Equal(c.Generations) {
			return fmt.Errorf("%w: it lists other generations", ErrOther)
		}
		return nil
	}
	if !same(v, c.values[name]) {
		return fmt.Errorf("%w: %s differs from the copy", ErrOther, name)
	}
	return nil
}

func same(a, b []byte) bool { return bytes.Equal(bytes.TrimSpace(a), bytes.TrimSpace(b)) }

// format is what Encrypt encrypts, in JSON.
type format struct {
	Format  string            `json:"format"`
	Version int               `json:"version"`
	Cluster string            `json:"cluster"`
	Order   pki.Generations   `json:"generations"`
	Values  map[string]string `json:"values"` // by name in the key store
}

const (
	formatName    = "k8s-from-scratch/key-copy"
	formatVersion = 1
)

func (c *Copy) marshal() ([]byte, error) {
	f := format{Format: formatName, Version: formatVersion, Cluster: c.Cluster, Values: map[string]string{}}
	for _, k := range pki.Kinds() {
		f.Order = f.Order.With(k, c.Generations.Of(k))
	}
	for name, v := range c.values {
		f.Values[name] = string(v)
	}
	return json.Marshal(f)
}

// unmarshal reads and checks a copy. The errors of package json are not passed on: they may quote
// what they read.
func unmarshal(raw []byte) (*Copy, error) {
	var head struct {
		Format  string `json:"format"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(raw, &head); err != nil || head.Format != formatName {
		return nil, fmt.Errorf("%w: its encrypted content is something else", ErrForeign)
	}
	if head.Version != formatVersion {
		return nil, fmt.Errorf("%w: it has version %d of the format, and this provider reads version %d", ErrForeign, head.Version, formatVersion)
	}
	var f format
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, fmt.Errorf("%w: its fields cannot be read", ErrDamaged)
	}
	c := &Copy{Cluster: f.Cluster, Generations: f.Order, values: map[string][]byte{}}
	for name, v := range f.Values {
		c.values[name] = []byte(v)
	}
	for _, k := range pki.Kinds() {
		if err := pki.CheckGenerations(nil, c.Generations.Of(k)); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, k, err)
		}
	}
	if err := pki.CheckValues(c.Generations, c.values); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return c, nil
}
