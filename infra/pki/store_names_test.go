package pki

import (
	"errors"
	"testing"
)

// TestUnknownNames checks that a store takes and gives only the names of a cluster's keys.
func TestUnknownNames(t *testing.T) {
	ctx, m := t.Context(), NewMemoryStore(nil)
	for _, name := range []string{"", "x", "kubernetes-ca", "kubernetes-ca.pub", "kubernetes-ca-1.key", "encryption.pub", "../other/pki/encryption.key", "kubernetes-ca.key\n", "generations.key", "owner.key"} {
		_, got := m.Get(ctx, name)
		for what, err := range map[string]error{
			"get": got, "create": m.Create(ctx, name, nil), "replace": m.Replace(ctx, name, nil), "delete": m.Delete(ctx, name),
		} {
			if !errors.Is(err, ErrUnknownName) {
				t.Errorf("%s %q: %v", what, name, err)
			}
		}
	}
	// A private key is never replaced.
	if err := m.Replace(ctx, KeyEtcdCA, []byte("x")); !errors.Is(err, ErrUnknownName) {
		t.Errorf("replace of a private key: %v", err)
	}
	for _, name := range []string{KeyEtcdCA, CertEtcdCA, "etcd-ca-2.key", PublicServiceAccount, KeyEncryption, NameGenerations, NameOwner} {
		if err := m.Create(ctx, name, []byte("x")); err != nil {
			t.Errorf("create %s: %v", name, err)
		}
	}
}
