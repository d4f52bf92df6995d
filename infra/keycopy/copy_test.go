package keycopy

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"filippo.io/age"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

var rotating = pki.Generations{KubernetesCA: []int{2, 1}, ServiceAccount: []int{1, 2}, Encryption: []int{3}}

// made makes the keys of a cluster and returns them with their reference.
func made(t *testing.T, g pki.Generations) (*pki.MemoryStore, pki.Ref) {
	t.Helper()
	s := pki.NewMemoryStore(nil)
	ref, err := pki.Bootstrap(t.Context(), s, "demo", time.Now(), rand.Reader, pki.Options{Store: pki.StoreSSM, Generations: g})
	if err != nil {
		t.Fatal(err)
	}
	return s, ref
}

func copied(t *testing.T, s pki.Store, ref pki.Ref) *Copy {
	t.Helper()
	c, err := Of(t.Context(), s, ref)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func identity(t *testing.T) *age.X25519Identity {
	t.Helper()
	id, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func content(t *testing.T, s pki.Store) map[string]string {
	t.Helper()
	names, err := s.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, n := range names {
		v, err := s.Get(t.Context(), n)
		if err != nil {
			t.Fatal(err)
		}
		out[n] = string(v)
	}
	return out
}

// TestThereAndBack copies, encrypts, decrypts and restores the keys of clusters, and compares.
func TestThereAndBack(t *testing.T) {
	t.Parallel()
	mine, other := identity(t), identity(t)
	quantum, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	for name, g := range map[string]pki.Generations{"first generations": {}, "in a rotation": rotating} {
		for _, to := range []struct {
			recipients []string
			identity   string
		}{
			{[]string{mine.Recipient().String()}, mine.String()},
			{[]string{other.Recipient().String(), mine.Recipient().String()}, "# created: today\n# public key: " + mine.Recipient().String() + "\n" + mine.String() + "\n"},
			{[]string{quantum.Recipient().String()}, quantum.String()},
		} {
			s, ref := made(t, g)
			c := copied(t, s, ref)
			data, err := Encrypt(c, to.recipients)
			if err != nil {
				t.Fatal(err)
			}
			back, err := Decrypt(data, to.identity)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if back.Name() != c.Name() || back.Cluster != "demo" || !back.Generations.Equal(g) {
				t.Errorf("%s: %v is not %v", name, back, c)
			}
			restored := pki.NewMemoryStore(nil)
			for range 2 { // also once more
				if err := back.Restore(t.Context(), restored); err != nil {
					t.Fatal(err)
				}
			}
			if want, got := content(t, s), content(t, restored); !maps.Equal(want, got) {
				t.Errorf("%s: restored %v, wanted %v", name, slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)))
			}
			again, err := pki.Bootstrap(t.Context(), restored, "demo", time.Now(), noRand{}, pki.Options{Store: pki.StoreSSM, Generations: g})
			if err != nil || again.KubernetesCA != ref.KubernetesCA {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// noRand fails: nothing may be made.
type noRand struct{}

func (noRand) Read([]byte) (int, error) { return 0, errors.New("something is made") }

// TestName: the same keys have the same name, and other keys, or another order, another one.
func TestName(t *testing.T) {
	t.Parallel()
	s, ref := made(t, rotating)
	c := copied(t, s, ref)
	if other := copied(t, pki.NewMemoryStore(content(t, s)), ref); other.Name() != c.Name() {
		t.Error("the same keys have two names")
	}
	renamed := ref
	renamed.Cluster = "other"
	if copied(t, s, renamed).Name() != c.Name() {
		t.Error("the name depends on the cluster's name")
	}
	if n := c.Name(); len(n) != 64+len(Extension) || strings.Trim(strings.TrimSuffix(n, Extension), "0123456789abcdef") != "" {
		t.Errorf("name %s", n)
	}
	names := map[string]bool{c.Name(): true}
	turned, _ := ref.Arrange(rotating.With(pki.KindKubernetesCA, []int{1, 2}))
	if _, err := pki.Rotate(t.Context(), s, "demo", rotating, time.Now(), rand.Reader, pki.Options{Generations: turned.Generations}); err != nil {
		t.Fatal(err)
	}
	names[copied(t, s, turned).Name()] = true
	another, anotherRef := made(t, rotating)
	names[copied(t, another, anotherRef).Name()] = true
	if len(names) != 3 {
		t.Errorf("names %v", names)
	}
}

// TestOther: a store that does not fit its reference is not copied.
func TestOther(t *testing.T) {
	t.Parallel()
	s, ref := made(t, pki.Generations{})
	_, otherRef := made(t, pki.Generations{})
	if _, err := Of(t.Context(), s, otherRef); !errors.Is(err, ErrOther) {
		t.Errorf("other certificates: %v", err)
	}
	ref2 := ref
	ref2.Generations = rotating
	if _, err := Of(t.Context(), s, ref2); !errors.Is(err, ErrOther) {
		t.Errorf("other generations: %v", err)
	}
	if err := s.Delete(t.Context(), pki.KeyEncryption); err != nil {
		t.Fatal(err)
	}
	if _, err := Of(t.Context(), s, ref); !errors.Is(err, pki.ErrNotFound) {
		t.Errorf("a lost key: %v", err)
	}
	if err := s.Create(t.Context(), pki.KeyEncryption, []byte("no key")); err != nil {
		t.Fatal(err)
	}
	if _, err := Of(t.Context(), s, ref); err == nil || strings.Contains(err.Error(), "no key") {
		t.Errorf("an invalid key: %v", err)
	}
}

// TestDecryptRefuses: every way in which data are no copy for this identity has its error.
func TestDecryptRefuses(t *testing.T) {
	t.Parallel()
	s, ref := made(t, rotating)
	c := copied(t, s, ref)
	mine, other := identity(t), identity(t)
	to := []string{mine.Recipient().String()}
	encrypt := func(plain []byte) []byte {
		var out bytes.Buffer
		w, err := age.Encrypt(&out, mine.Recipient())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(plain); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	changed := func(change func(*Copy)) []byte {
		d := &Copy{Cluster: c.Cluster, Generations: c.Generations, values: maps.Clone(c.values)}
		change(d)
		plain, err := d.marshal()
		if err != nil {
			t.Fatal(err)
		}
		return encrypt(plain)
	}
	good, err := Encrypt(c, to)
	if err != nil {
		t.Fatal(err)
	}
	flipped := func(at int) []byte {
		out := bytes.Clone(good)
		out[at] ^= 1
		return out
	}
	for name, test := range map[string]struct {
		data     []byte
		identity string
		want     error
	}{
		"another identity":        {good, other.String(), ErrIdentity},
		"no identity":             {good, "", ErrIdentity},
		"an identity with a typo": {good, mine.String()[:60] + "QQ", ErrIdentity},
		"a recipient":             {good, mine.Recipient().String(), ErrIdentity},
		"empty":                   {nil, mine.String(), ErrForeign},
		"not encrypted":           {[]byte(`{"format":"k8s-from-scratch/key-copy","version":1}`), mine.String(), ErrForeign},
		"something else":          {encrypt([]byte("hello")), mine.String(), ErrForeign},
		"other JSON":              {encrypt([]byte(`{"format":"other","version":1}`)), mine.String(), ErrForeign},
		"a later version":         {encrypt([]byte(`{"format":"k8s-from-scratch/key-copy","version":2,"values":[]}`)), mine.String(), ErrForeign},
		"fields of other types":   {encrypt([]byte(`{"format":"k8s-from-scratch/key-copy","version":1,"values":["hidden"]}`)), mine.String(), ErrDamaged},
		"no keys":                 {encrypt([]byte(`{"format":"k8s-from-scratch/key-copy","version":1}`)), mine.String(), ErrDamaged},
		"impossible generations":  {encrypt([]byte(`{"format":"k8s-from-scratch/key-copy","version":1,"generations":{"etcd_ca":[1,1]}}`)), mine.String(), ErrDamaged},
		"cut":                     {good[:len(good)-1], mine.String(), ErrDamaged},
		"cut in the header":       {good[:40], mine.String(), ErrDamaged},
		"changed at its end":      {flipped(len(good) - 1), mine.String(), ErrDamaged},
		"too large":               {encrypt(bytes.Repeat([]byte(" "), MaxSize+1)), mine.String(), ErrDamaged},
		"a key is missing":        {changed(func(c *Copy) { delete(c.values, "kubernetes-ca-2.key") }), mine.String(), ErrDamaged},
		"the key of another CA":   {changed(func(c *Copy) { c.values["etcd-ca.key"] = c.values["kubernetes-ca.key"] }), mine.String(), ErrDamaged},
		"another public key":      {changed(func(c *Copy) { c.values["service-account.pub"] = c.values["service-account-2.pub"] }), mine.String(), ErrDamaged},
		"no encryption key":       {changed(func(c *Copy) { c.values["encryption-3.key"] = []byte("hidden") }), mine.String(), ErrDamaged},
		"an entry too many":       {changed(func(c *Copy) { c.values["encryption.key"] = []byte("hidden") }), mine.String(), ErrDamaged},
		"a foreign name":          {changed(func(c *Copy) { c.values["owner"] = []byte("{}") }), mine.String(), ErrDamaged},
	} {
		got, err := Decrypt(test.data, test.identity)
		if !errors.Is(err, test.want) || got != nil {
			t.Errorf("%s: %v, wanted %v", name, err, test.want)
			continue
		}
		for _, secret := range []string{"hidden", "PRIVATE KEY", mine.String()[20:40]} {
			if strings.Contains(err.Error(), secret) {
				t.Errorf("%s: the error has a secret: %v", name, err)
			}
		}
	}
}

// TestRestoreRefuses: a store with other keys stays as it is.
func TestRestoreRefuses(t *testing.T) {
	t.Parallel()
	s, ref := made(t, pki.Generations{})
	c := copied(t, s, ref)
	other, _ := made(t, pki.Generations{})
	for name, entries := range map[string]map[string]string{
		"all others":           content(t, other),
		"one other key":        {pki.KeyEtcdCA: content(t, other)[pki.KeyEtcdCA]},
		"another generation":   {"etcd-ca-2.key": content(t, other)[pki.KeyEtcdCA]},
		"one more in a prefix": with(content(t, s), "etcd-ca-2.crt", content(t, other)[pki.CertEtcdCA]),
	} {
		found := pki.NewMemoryStore(entries)
		if err := c.Restore(t.Context(), found); !errors.Is(err, ErrOther) {
			t.Errorf("%s: %v", name, err)
		}
		if !maps.Equal(content(t, found), entries) {
			t.Errorf("%s: something was written", name)
		}
	}
	if err := c.Restore(t.Context(), pki.NewMemoryStore(map[string]string{pki.NameOwner: "{}"})); err != nil {
		t.Errorf("a store that is only claimed: %v", err)
	}
}

func with(m map[string]string, name, value string) map[string]string {
	m[name] = value
	return m
}

// dyingStore fails at its nth write, before or after it.
type dyingStore struct {
	*pki.MemoryStore
	left  chan struct{}
	after bool
}

var errKilled = errors.New("killed")

func (d *dyingStore) Create(ctx context.Context, name string, value []byte) error {
	select {
	case <-d.left:
		return d.MemoryStore.Create(ctx, name, value)
	default:
		if d.after {
			_ = d.MemoryStore.Create(ctx, name, value)
		}
		return errKilled
	}
}

// TestRestoreInterrupted ends a restore at every write. The next one completes it, and a bootstrap
// in its place makes no cluster with keys of two origins.
func TestRestoreInterrupted(t *testing.T) {
	t.Parallel()
	for _, g := range []pki.Generations{{}, rotating} {
		s, ref := made(t, g)
		c := copied(t, s, ref)
		all := content(t, s)
		for writes := range len(all) {
			for _, after := range []bool{false, true} {
				d := &dyingStore{MemoryStore: pki.NewMemoryStore(nil), left: make(chan struct{}, writes), after: after}
				for range writes {
					d.left <- struct{}{}
				}
				if err := c.Restore(t.Context(), d); !errors.Is(err, errKilled) {
					t.Fatal(err)
				}
				left := content(t, d.MemoryStore)
				secrets := slices.ContainsFunc(slices.Collect(maps.Keys(left)), pki.Secret)
				_, err := pki.Bootstrap(t.Context(), pki.NewMemoryStore(left), "demo", time.Now(), rand.Reader, pki.Options{Generations: g})
				if complete := maps.Equal(left, all); err == nil && secrets && !complete {
					t.Errorf("after %d writes new keys were made beside those of the copy: %v", writes, slices.Sorted(maps.Keys(left)))
				}
				if err := c.Restore(t.Context(), d.MemoryStore); err != nil || !maps.Equal(content(t, d.MemoryStore), all) {
					t.Errorf("after %d writes: %v", writes, err)
				}
			}
		}
	}
}

func TestCheckRecipient(t *testing.T) {
	t.Parallel()
	mine := identity(t)
	quantum, err := age.GenerateHybridIdentity()
	if err != nil {
		t.Fatal(err)
	}
	good := mine.Recipient().String()
	for s, want := range map[string]string{
		good:                           "",
		quantum.Recipient().String():   "",
		"":                             "begins with age1",
		"age1":                         "not an age recipient",
		good[:len(good)-1] + "b":       "not an age recipient",
		good + "\n":                    "not an age recipient",
		mine.String():                  "this is an identity, which is secret",
		strings.ToLower(mine.String()): "this is an identity",
		"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHsKLqeplhpW+uObz5dvMgjz1OxfM/XXUB+VHtZ6isGN": "SSH keys",
	} {
		err := CheckRecipient(s)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%q: %v, wanted %q", s, err, want)
		}
		if err != nil && strings.Contains(strings.ToUpper(err.Error()), "SECRET-KEY") {
			t.Errorf("the error quotes a secret: %v", err)
		}
	}
	if err := CheckRecipients([]string{good, quantum.Recipient().String()}); err == nil || !strings.Contains(err.Error(), "mix") {
		t.Errorf("a post-quantum and a classic recipient: %v", err)
	}
	if err := CheckRecipients(nil); err == nil {
		t.Error("no recipient")
	}
	for s, good := range map[string]bool{mine.String(): true, quantum.String() + "\n": true, good: false, "": false, "# nothing": false} {
		if err := CheckIdentity(s); (err == nil) != good {
			t.Errorf("identity: %v", err)
		}
	}
}

// TestPrintsNoKey: a copy in a log or a message shows no key.
func TestPrintsNoKey(t *testing.T) {
	t.Parallel()
	s, ref := made(t, pki.Generations{})
	c := copied(t, s, ref)
	var log bytes.Buffer
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "copy", c)
	for _, text := range []string{fmt.Sprint(c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c), log.String()} {
		if strings.Contains(text, "PRIVATE") || !strings.Contains(text, "demo") {
			t.Error(text)
		}
	}
}
