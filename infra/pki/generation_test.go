package pki

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCheckGenerations(t *testing.T) {
	for _, tt := range []struct {
		prior, next []int
		want        string // part of the error; empty means that the step is allowed
	}{
		{nil, []int{1}, ""},
		{nil, []int{2, 1}, ""},
		{[]int{1}, []int{1}, ""},
		{[]int{1}, []int{1, 2}, ""},
		{[]int{1, 2}, []int{2, 1}, ""},
		{[]int{2, 1}, []int{2}, ""},
		{[]int{2}, []int{2, 3}, ""},
		{[]int{1}, []int{1, 7}, ""},
		{[]int{1, 2}, []int{1}, ""},       // cancelled
		{[]int{2, 1}, []int{1, 2}, ""},    // back again
		{[]int{1, 2}, []int{2, 1, 3}, ""}, // the next one already added
		{[]int{3, 2, 1}, []int{3}, ""},    // both old ones at once
		{[]int{1, 2, 3}, []int{3, 1}, ""}, // one that never issued is dropped
		{[]int{1}, []int{2, 1}, "generation 2 is not trusted yet: write [1, 2] and apply, then [2, 1]"},
		{[]int{1}, []int{2}, "generation 2 is not trusted yet: write [1, 2]"},
		{[]int{2, 1}, []int{3, 2}, "generation 3 is not trusted yet: write [2, 1, 3] and apply, then [3, 2]"},
		{[]int{1, 2}, []int{2}, "generation 1 has issued until now and must stay trusted until everything it issued is replaced: write [2, 1] and apply, then [2]"},
		{[]int{2}, []int{2, 1}, "generation 1 cannot follow generation 2: a new generation has a number that was never used, 3 or more"},
		{[]int{1}, nil, "no generation"},
		{[]int{1}, []int{1, 1}, "listed twice"},
		{[]int{1}, []int{1, 0}, "count from 1"},
		{[]int{1}, []int{1, 2, 3, 4}, "at most 3"},
	} {
		err := CheckGenerations(tt.prior, tt.next)
		if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%v -> %v: %v, wanted %q", tt.prior, tt.next, err, tt.want)
		}
	}
}

func TestNames(t *testing.T) {
	g := Generations{KubernetesCA: []int{2, 1}, Encryption: []int{3}}
	names := Names(g)
	if diff := cmp.Diff([]string{
		"kubernetes-ca-2.key", "kubernetes-ca-2.crt", "kubernetes-ca.key", "kubernetes-ca.crt", "etcd-ca.key", "etcd-ca.crt",
		"front-proxy-ca.key", "front-proxy-ca.crt", "service-account.key", "service-account.pub", "encryption-3.key", "generations",
	}, names); diff != "" {
		t.Error(diff)
	}
	foreign := []string{"", "x.key", "kubernetes-ca-1.key", "kubernetes-ca-02.key", "kubernetes-ca--2.key", "kubernetes-ca-2.pub", "encryption.crt", "kubernetes-ca", "etcd-ca-2.crt.bak"}
	if got := Owned(slices.Concat(foreign, names)); !slices.Equal(got, names) {
		t.Errorf("owned are %q", got)
	}
	if got := Strays(slices.Concat(foreign, names), Generations{KubernetesCA: []int{2}}); !slices.Equal(got, []string{"kubernetes-ca.key", "kubernetes-ca.crt", "encryption-3.key"}) {
		t.Errorf("strays are %q", got)
	}
	for _, n := range slices.Concat(foreign, names) {
		public := strings.HasSuffix(n, ".crt") && slices.Contains(names, n) || n == "service-account.pub" || n == "generations"
		if Secret(n) == public {
			t.Errorf("%q counts as secret: %t", n, !public)
		}
	}
}

// steps are the steps of three rotations of every key.
func steps() []Generations {
	var out []Generations
	for _, list := range [][]int{{1}, {1, 2}, {2, 1}, {2}, {2, 3}, {3, 2}, {3}} {
		var g Generations
		for _, k := range Kinds() {
			g = g.With(k, list)
		}
		out = append(out, g)
	}
	return out
}

// TestRotateSurvivesAKillAtAnyInstant interrupts every step of a rotation at every call to the
// store, and completes it.
func TestRotateSurvivesAKillAtAnyInstant(t *testing.T) {
	ctx := context.Background()
	store, from := NewMemoryStore(nil), steps()[0]
	before, err := Bootstrap(ctx, store, "demo", now, rand.Reader, Options{Store: StoreSSM})
	if err != nil {
		t.Fatal(err)
	}
	killed := 0
	for _, next := range steps()[1:] {
		o := Options{Store: StoreSSM, Generations: next}
		for _, after := range []bool{false, true} {
			for n := 1; n <= 50; n++ {
				broken := NewMemoryStore(store.values)
				if _, err := Rotate(ctx, &faultyStore{MemoryStore: broken, left: n, after: after}, "demo", from, now, rand.Reader, o); err != nil {
					killed++
				}
				half := maps.Clone(broken.values)
				if _, err := Rotate(ctx, broken, "demo", from, now, rand.Reader, o); err != nil {
					t.Fatalf("to %v, killed at call %d (after: %t), the next run failed: %v", next.KubernetesCA, n, after, err)
				}
				for _, name := range Names(next) {
					was, had := half[name]
					if name != NameGenerations && had && broken.values[name] != was {
						t.Errorf("to %v, killed at call %d, the next run changed %s", next.KubernetesCA, n, name)
					}
				}
				if got, want := slices.Sorted(maps.Keys(broken.values)), slices.Sorted(slices.Values(Names(next))); !slices.Equal(got, want) {
					t.Fatalf("to %v, killed at call %d (after: %t): the store has %q, wanted %q", next.KubernetesCA, n, after, got, want)
				}
			}
		}
		ref, err := Rotate(ctx, store, "demo", from, now, rand.Reader, o)
		if err != nil {
			t.Fatal(err)
		}
		checkRef(t, ctx, store, ref)
		if arranged, made := before.Arrange(next); len(made) == 0 {
			if diff := cmp.Diff(ref, arranged); diff != "" {
				t.Errorf("to %v: the plan would differ: %s", next.KubernetesCA, diff)
			}
		} else if len(made) != len(Kinds()) {
			t.Errorf("to %v: not known are %v", next.KubernetesCA, made)
		}
		from, before = next, ref
	}
	if killed < 100 {
		t.Errorf("only %d runs were killed", killed)
	}
}

func checkRef(t *testing.T, ctx context.Context, store *MemoryStore, ref Ref) {
	t.Helper()
	again, err := LoadRef(ctx, store, "demo", Options{Store: StoreSSM})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ref, again); diff != "" {
		t.Errorf("read back: %s", diff)
	}
	for _, ca := range []CAName{KubernetesCA, EtcdCA, FrontProxyCA} {
		key, err := store.Get(ctx, ref.IssuingKey(ca))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := LoadAuthority(KeyPair{CertPEM: []byte(ref.Bundle(ca)), KeyPEM: key}); err != nil {
			t.Error(err)
		}
		wanted := commonName(ca.Kind(), ref.Generations.Issuing(ca.Kind()))
		if got, err := CommonName([]byte(ref.IssuingCertificate(ca))); err != nil || got != wanted {
			t.Errorf("%s is issued by %s (%v), wanted %s", ca, got, err, wanted)
		}
		if got := strings.Count(ref.IssuingCertificate(ca), "BEGIN"); got != 1 {
			t.Errorf("%d issuing certificates", got)
		}
	}
	for name, value := range ref.Public() {
		if stored, _ := store.Get(ctx, name); strings.TrimSpace(string(stored)) != strings.TrimSpace(value) {
			t.Errorf("%s is %q, stored is %q", name, value, stored)
		}
	}
}

func TestRotateInState(t *testing.T) {
	ctx := context.Background()
	o := Options{Store: StoreState}
	ref, err := Bootstrap(ctx, NewMemoryStore(nil), "demo", now, rand.Reader, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, next := range steps()[1:] {
		arranged, made := ref.Arrange(next)
		o.Generations = next
		rotated, err := Rotate(ctx, ref.MemoryStore(), "demo", ref.Generations, now, rand.Reader, o)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(rotated, arranged); len(made) == 0 && diff != "" {
			t.Errorf("the plan would differ: %s", diff)
		}
		var secrets []string
		for _, n := range Names(next) {
			if Secret(n) {
				secrets = append(secrets, n)
			}
		}
		slices.Sort(secrets)
		if got := slices.Sorted(maps.Keys(rotated.Keys)); !slices.Equal(got, secrets) {
			t.Errorf("keys are %q", got)
		}
		ref = rotated
	}
}

// TestOldStateIsRefused checks that with an outdated state no keys are deleted and no cluster is
// bootstrapped again.
func TestOldStateIsRefused(t *testing.T) {
	ctx := context.Background()
	all := steps()
	store := NewMemoryStore(nil)
	if _, err := Bootstrap(ctx, store, "demo", now, rand.Reader, Options{Generations: all[2]}); err != nil {
		t.Fatal(err)
	}
	before := maps.Clone(store.values)
	for what, run := range map[string]func() error{
		"a lost state and a forgotten rotation": func() error {
			_, err := Bootstrap(ctx, store, "demo", now, rand.Reader, Options{})
			return err
		},
		"an old state": func() error {
			_, err := Rotate(ctx, store, "demo", all[0], now, rand.Reader, Options{Generations: all[1]})
			return err
		},
	} {
		err := run()
		if err == nil || !strings.Contains(err.Error(), "write generations.kubernetes_ca = [2, 1] and apply") {
			t.Errorf("%s: %v", what, err)
		}
		if !maps.Equal(before, store.values) {
			t.Errorf("%s: the store was changed", what)
		}
	}
}

func TestGenerationsAreReadBack(t *testing.T) {
	for _, bad := range []string{"x", `{"kubernetes_ca":[0]}`, `{"encryption":[1,1]}`} {
		if _, err := ParseGenerations(bad); err == nil {
			t.Errorf("%s is accepted", bad)
		}
	}
	g, err := ParseGenerations(`{"kubernetes_ca":[2,1]}`)
	if err != nil || !slices.Equal(g.Of(KindKubernetesCA), []int{2, 1}) || g.Issuing(KindEncryption) != 1 {
		t.Errorf("%v, %v", g, err)
	}
	if !g.Equal(Generations{KubernetesCA: []int{2, 1}, EtcdCA: []int{1}}) || g.Equal(Generations{}) {
		t.Error("generations are compared wrongly")
	}
	if got := fmt.Sprint(EncryptionKeyName(2), g.SecretNames(KindKubernetesCA)); got != "key-2[kubernetes-ca-2.key kubernetes-ca.key]" {
		t.Error(got)
	}
}
