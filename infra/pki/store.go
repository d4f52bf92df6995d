package pki

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The errors of every Store implementation, wrapped or not.
var (
	// ErrExists: Create found the name in use; the stored value is unchanged.
	ErrExists = errors.New("already exists in the key store")
	// ErrNotFound: Get or Delete found nothing under the name.
	ErrNotFound = errors.New("not found in the key store")
	// ErrUnknownName: nothing that a cluster keeps has the name, or Replace was asked for a private
	// key.
	ErrUnknownName = errors.New("no name in a key store")
)

// Names under which a cluster's first keys and public certificates are stored. Those of a later
// generation have its number: "kubernetes-ca-2.key".
const (
	KeyKubernetesCA      = "kubernetes-ca.key"
	KeyEtcdCA            = "etcd-ca.key"
	KeyFrontProxyCA      = "front-proxy-ca.key"
	KeyServiceAccount    = "service-account.key"
	KeyEncryption        = "encryption.key"
	CertKubernetesCA     = "kubernetes-ca.crt"
	CertEtcdCA           = "etcd-ca.crt"
	CertFrontProxyCA     = "front-proxy-ca.crt"
	PublicServiceAccount = "service-account.pub"

	// NameGenerations holds the Generations as JSON; if it is missing, every key is of its first
	// generation.
	NameGenerations = "generations"

	// NameOwner says whose the keys are, where others could have made them. It is public.
	NameOwner = "owner"
)

// Extensions of the names.
const (
	extKey  = ".key"
	extCert = ".crt"
	extPub  = ".pub"
)

// naming has the names of a kind's entries.
var naming = map[Kind]struct{ stem, public string }{
	KindKubernetesCA:   {"kubernetes-ca", extCert},
	KindEtcdCA:         {"etcd-ca", extCert},
	KindFrontProxyCA:   {"front-proxy-ca", extCert},
	KindServiceAccount: {"service-account", extPub},
	KindEncryption:     {"encryption", ""},
}

func entryName(k Kind, generation int, ext string) string {
	if generation == 1 {
		return naming[k].stem + ext
	}
	return naming[k].stem + "-" + strconv.Itoa(generation) + ext
}

// SecretName returns the name under which a generation's private key is stored.
func SecretName(k Kind, generation int) string { return entryName(k, generation, extKey) }

// SecretNames returns SecretName of every generation of a key, the issuing one first.
func (g Generations) SecretNames(k Kind) []string {
	var out []string
	for _, n := range g.Of(k) {
		out = append(out, SecretName(k, n))
	}
	return out
}

// PublicName returns the name under which a generation's certificate or public key is stored, empty
// for a kind that has none.
func PublicName(k Kind, generation int) string {
	ext := naming[k].public
	if ext == "" {
		return ""
	}
	return entryName(k, generation, ext)
}

// Names returns every name that a cluster of these generations has in its store.
func Names(g Generations) []string {
	var out []string
	for _, k := range Kinds() {
		for _, n := range g.Of(k) {
			out = append(out, SecretName(k, n))
			if public := PublicName(k, n); public != "" {
				out = append(out, public)
			}
		}
	}
	if !g.Equal(Generations{}) {
		out = append(out, NameGenerations)
	}
	return out
}

// Owned returns the names that belong to a cluster's keys, of any generation.
func Owned(names []string) []string {
	return slices.DeleteFunc(slices.Clone(names), func(n string) bool {
		_, ok := parseName(n)
		return !ok
	})
}

// Strays returns the names of keys that belong to none of the generations.
func Strays(present []string, g Generations) []string {
	wanted := Names(g)
	return slices.DeleteFunc(Owned(present), func(n string) bool {
		return n == NameGenerations || n == NameOwner || slices.Contains(wanted, n)
	})
}

// InOrderOfRemoval groups names in the order in which they are deleted: public parts before their
// keys, and last whose they are.
func InOrderOfRemoval(names []string) [][]string {
	out := make([][]string, 3)
	for _, n := range names {
		switch {
		case n == NameOwner:
			out[2] = append(out[2], n)
		case Secret(n):
			out[1] = append(out[1], n)
		default:
			out[0] = append(out[0], n)
		}
	}
	return out
}

// parseName reports whether a name is one of ours, and whether its value is public.
func parseName(name string) (public, ok bool) {
	if name == NameGenerations || name == NameOwner {
		return true, true
	}
	for k, n := range naming {
		rest, found := strings.CutPrefix(name, n.stem)
		if !found {
			continue
		}
		dot := strings.LastIndexByte(rest, '.')
		if dot < 0 {
			continue
		}
		generation, ext := 1, rest[dot:]
		if number, numbered := strings.CutPrefix(rest[:dot], "-"); numbered {
			generation, _ = strconv.Atoi(number)
		}
		if (ext == extKey || ext == n.public) && generation > 0 && entryName(k, generation, ext) == name {
			return ext != extKey, true
		}
	}
	return false, false
}

// Secret reports whether the value stored under name is private. Unknown names count as private.
func Secret(name string) bool {
	public, _ := parseName(name)
	return !public
}

// CheckName returns ErrUnknownName unless a key, a certificate, the list of generations or the
// owner has the name. Every Store checks with it, so that a mistake in a name can neither write
// beside the keys nor read and delete what is not theirs.
func CheckName(name string) error {
	if _, ok := parseName(name); !ok {
		return fmt.Errorf("%q: %w", name, ErrUnknownName)
	}
	return nil
}

// CheckPublicName is CheckName, and returns the error for private keys as well.
func CheckPublicName(name string) error {
	if public, ok := parseName(name); !ok || !public {
		return fmt.Errorf("%q as a public entry: %w", name, ErrUnknownName)
	}
	return nil
}

// Store keeps the private keys of one cluster. Implementations are safe for concurrent use and
// never log values. Every method with a name returns ErrUnknownName for names that CheckName does
// not accept, and Replace for those that CheckPublicName does not accept.
type Store interface {
	// Get returns ErrNotFound if there is nothing under name.
	Get(ctx context.Context, name string) ([]byte, error)
	// Create writes atomically and only if the name is not in use; otherwise it returns ErrExists.
	Create(ctx context.Context, name string, value []byte) error
	// Replace writes a public entry atomically, whether or not it exists.
	Replace(ctx context.Context, name string, value []byte) error
	// Delete returns ErrNotFound if there is nothing under name.
	Delete(ctx context.Context, name string) error
	// List returns the names present, sorted.
	List(ctx context.Context) ([]string, error)
}
