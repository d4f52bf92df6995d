package pki

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kind names one of a cluster's keys. Each is rotated by generations.
type Kind string

// The kinds, with the names of the fields of Generations.
const (
	KindKubernetesCA   Kind = "kubernetes_ca"
	KindEtcdCA         Kind = "etcd_ca"
	KindFrontProxyCA   Kind = "front_proxy_ca"
	KindServiceAccount Kind = "service_account"
	KindEncryption     Kind = "encryption"
)

// Kinds returns every kind.
func Kinds() []Kind {
	return []Kind{KindKubernetesCA, KindEtcdCA, KindFrontProxyCA, KindServiceAccount, KindEncryption}
}

// MaxGenerations bounds how many generations of a key exist at the same time: an old, a current and
// a new one.
const MaxGenerations = 3

// Generations lists the generations of each key. The first generation issues (it signs or
// encrypts); all are trusted (they verify or decrypt). Empty means only the first: [1].
type Generations struct {
	KubernetesCA   []int `json:"kubernetes_ca"`
	EtcdCA         []int `json:"etcd_ca"`
	FrontProxyCA   []int `json:"front_proxy_ca"`
	ServiceAccount []int `json:"service_account"`
	Encryption     []int `json:"encryption"`
}

func (g *Generations) field(k Kind) *[]int {
	switch k {
	case KindKubernetesCA:
		return &g.KubernetesCA
	case KindEtcdCA:
		return &g.EtcdCA
	case KindFrontProxyCA:
		return &g.FrontProxyCA
	case KindServiceAccount:
		return &g.ServiceAccount
	case KindEncryption:
		return &g.Encryption
	}
	return new([]int)
}

// Of returns the generations of one key, the issuing one first; at least one.
func (g Generations) Of(k Kind) []int {
	if list := *g.field(k); len(list) > 0 {
		return slices.Clone(list)
	}
	return []int{1}
}

// Issuing returns the generation of a key that issues, signs or writes.
func (g Generations) Issuing(k Kind) int { return g.Of(k)[0] }

// With returns g with the generations of one key replaced.
func (g Generations) With(k Kind, list []int) Generations {
	*g.field(k) = slices.Clone(list)
	return g
}

// Equal reports whether both have the same generations of every key.
func (g Generations) Equal(o Generations) bool {
	return !slices.ContainsFunc(Kinds(), func(k Kind) bool { return !slices.Equal(g.Of(k), o.Of(k)) })
}

// full sets every kind explicitly.
func (g Generations) full() Generations {
	for _, k := range Kinds() {
		g = g.With(k, g.Of(k))
	}
	return g
}

// encode returns the value of NameGenerations.
func (g Generations) encode() string {
	b, err := json.Marshal(g.full())
	if err != nil {
		return "" // a struct of lists of numbers always marshals
	}
	return string(b)
}

// ParseGenerations reads the value of NameGenerations; empty means that every key is of its first
// generation.
func ParseGenerations(value string) (Generations, error) {
	var g Generations
	if value == "" {
		return g, nil
	}
	if err := json.Unmarshal([]byte(value), &g); err != nil {
		return g, fmt.Errorf("%s in the key store: %w", NameGenerations, err)
	}
	for _, k := range Kinds() {
		if err := CheckGenerations(nil, g.Of(k)); err != nil {
			return g, fmt.Errorf("%s in the key store: %s: %w", NameGenerations, k, err)
		}
	}
	return g, nil
}

// CheckGenerations returns why one list of generations must not follow another. A rotation has
// three steps: [1], [1, 2], [2, 1], [2]. A generation must be trusted before it issues, and as long
// as anything it has issued is in use. Without a prior list, only next itself is checked.
func CheckGenerations(prior, next []int) error {
	switch {
	case len(next) == 0:
		return fmt.Errorf("no generation: there is always one that issues, [1] at first")
	case len(next) > MaxGenerations:
		return fmt.Errorf("%d generations: at most %d are kept at once, drop one first", len(next), MaxGenerations)
	}
	for i, n := range next {
		if n < 1 {
			return fmt.Errorf("generation %d: they count from 1", n)
		}
		if slices.Contains(next[:i], n) {
			return fmt.Errorf("generation %d is listed twice", n)
		}
	}
	if len(prior) == 0 {
		return nil
	}
	old, first := prior[0], next[0]
	if !slices.Contains(prior, first) {
		trusted := append(slices.Clone(prior), first)
		return fmt.Errorf("generation %d is not trusted yet: write %s and apply, then %s", first, FormatGenerations(trusted), FormatGenerations([]int{first, old}))
	}
	if !slices.Contains(next, old) {
		return fmt.Errorf("generation %d has issued until now and must stay trusted until everything it issued is replaced: write %s and apply, then %s",
			old, FormatGenerations(append(slices.Clone(next), old)), FormatGenerations(next))
	}
	for _, n := range next {
		if newest := slices.Max(prior); !slices.Contains(prior, n) && n < newest {
			return fmt.Errorf("generation %d cannot follow generation %d: a new generation has a number that was never used, %d or more", n, newest, newest+1)
		}
	}
	return nil
}

// FormatGenerations returns a list as in a configuration: "[2, 1]".
func FormatGenerations(generations []int) string {
	words := make([]string, len(generations))
	for i, n := range generations {
		words[i] = strconv.Itoa(n)
	}
	return "[" + strings.Join(words, ", ") + "]"
}

// Fingerprint identifies a stored value without revealing it: its SHA-256 in hex. It is meant for
// random keys only, since a value that can be guessed can be found by it.
func Fingerprint(value []byte) string {
	sum := sha256.Sum256(value)
	return hex.EncodeToString(sum[:])
}

// EncryptionKeyName returns a generation's key name for the API server, which stores it with every
// value that it encrypts.
func EncryptionKeyName(generation int) string { return "key-" + strconv.Itoa(generation) }
