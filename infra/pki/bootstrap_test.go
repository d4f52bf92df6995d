package pki

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// faultyStore fails at its nth call, before or after the call takes effect.
type faultyStore struct {
	*MemoryStore
	mu    sync.Mutex
	left  int
	after bool
	gets  []string
}

var errKilled = errors.New("killed")

func (f *faultyStore) step(call func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left--
	if f.left < 0 || f.left == 0 && !f.after {
		return errKilled
	}
	err := call()
	if f.left == 0 {
		return errKilled
	}
	return err
}

func (f *faultyStore) Get(ctx context.Context, name string) (v []byte, err error) {
	err = f.step(func() error {
		f.gets = append(f.gets, name)
		v, err = f.MemoryStore.Get(ctx, name)
		return err
	})
	return v, err
}

func (f *faultyStore) Create(ctx context.Context, name string, value []byte) error {
	return f.step(func() error { return f.MemoryStore.Create(ctx, name, value) })
}

func (f *faultyStore) List(ctx context.Context) (v []string, err error) {
	err = f.step(func() error { v, err = f.MemoryStore.List(ctx); return err })
	return v, err
}

func TestBootstrapSurvivesAKillAtAnyInstant(t *testing.T) {
	ctx := context.Background()
	killed := 0
	for _, after := range []bool{false, true} {
		for n := 1; n <= 30; n++ {
			store := NewMemoryStore(nil)
			_, err := Bootstrap(ctx, &faultyStore{MemoryStore: store, left: n, after: after}, "demo", now, rand.Reader, Options{})
			if err != nil {
				killed++
			}
			before := maps.Clone(store.values)
			ref, err := Bootstrap(ctx, store, "demo", now, rand.Reader, Options{Store: StoreSSM})
			if err != nil {
				t.Fatalf("killed at call %d (after: %t), the next run failed: %v", n, after, err)
			}
			for name, v := range before {
				if store.values[name] != v {
					t.Errorf("killed at call %d (after: %t), the next run changed %s", n, after, name)
				}
			}
			if len(store.values) != len(Names(Generations{})) {
				t.Errorf("killed at call %d (after: %t): %s", n, after, store)
			}
			if _, err := LoadAuthority(KeyPair{CertPEM: []byte(ref.KubernetesCA), KeyPEM: []byte(store.values[KeyKubernetesCA])}); err != nil {
				t.Error(err)
			}
		}
	}
	if killed < 16 {
		t.Errorf("only %d of the runs were killed", killed)
	}
}

func TestBootstrapConcurrently(t *testing.T) {
	store := NewMemoryStore(nil)
	var refs [8]Ref
	var wg sync.WaitGroup
	for i := range refs {
		wg.Go(func() {
			ref, err := Bootstrap(context.Background(), store, "demo", now, rand.Reader, Options{Store: StoreSSM})
			if err != nil {
				t.Error(err)
			}
			refs[i] = ref
		})
	}
	wg.Wait()
	for _, r := range refs[1:] {
		if diff := cmp.Diff(refs[0], r); diff != "" {
			t.Errorf("two runs see different keys: %s", diff)
		}
	}
}

func TestBootstrapRefuses(t *testing.T) {
	ctx := context.Background()
	full := NewMemoryStore(nil)
	if _, err := Bootstrap(ctx, full, "demo", now, rand.Reader, Options{}); err != nil {
		t.Fatal(err)
	}
	other := NewMemoryStore(nil)
	if _, err := Bootstrap(ctx, other, "demo", now, rand.Reader, Options{}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		change func(map[string]string)
		want   string
	}{
		{"lost key", func(v map[string]string) { delete(v, KeyEtcdCA) }, "etcd-ca.key was stored before and is missing"},
		{"lost encryption key", func(v map[string]string) { delete(v, KeyEncryption) }, "encryption.key was stored before and is missing"},
		{"foreign key", func(v map[string]string) { v[KeyEtcdCA] = other.values[KeyEtcdCA] }, "does not belong to the certificate"},
		{"foreign service-account key", func(v map[string]string) { v[KeyServiceAccount] = other.values[KeyServiceAccount] }, "does not belong to service-account.key"},
		{"short encryption key", func(v map[string]string) { v[KeyEncryption] = "c2hvcnQ=" }, "encryption.key is not 32 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := NewMemoryStore(full.values)
			tt.change(store.values)
			before := maps.Clone(store.values)
			_, err := Bootstrap(ctx, store, "demo", now, rand.Reader, Options{})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is %v, wanted %q", err, tt.want)
			}
			if !maps.Equal(before, store.values) {
				t.Error("the store was changed")
			}
		})
	}
}

func TestLoadRefFetchesNoPrivateKey(t *testing.T) {
	ctx := context.Background()
	store := &faultyStore{MemoryStore: NewMemoryStore(nil), left: 1000}
	o := Options{Store: StoreSSM, Prefix: "/k8s/demo/pki/", Region: "eu-central-1"}
	want, err := Bootstrap(ctx, store, "demo", now, rand.Reader, o)
	if err != nil {
		t.Fatal(err)
	}
	store.gets = nil
	got, err := LoadRef(ctx, store, "demo", o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, name := range store.gets {
		if Secret(name) {
			t.Errorf("%s was fetched", name)
		}
	}
	if err := store.Delete(ctx, CertEtcdCA); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadRef(ctx, store, "demo", o); !errors.Is(err, ErrNotFound) {
		t.Errorf("error is %v, wanted ErrNotFound", err)
	}
	missing, err := Missing(ctx, store, Generations{})
	if err != nil || !cmp.Equal(missing, []string{CertEtcdCA}) {
		t.Errorf("missing is %q, %v", missing, err)
	}
}

func TestStateStoreRoundTrip(t *testing.T) {
	ctx := context.Background()
	o := Options{Store: StoreState}
	ref, err := Bootstrap(ctx, NewMemoryStore(nil), "demo", now, rand.Reader, o)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Bootstrap(ctx, ref.MemoryStore(), "demo", now, noRandom{}, o)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ref, again); diff != "" {
		t.Error(diff)
	}
}

// noRandom shows that nothing new is made.
type noRandom struct{}

func (noRandom) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
