package pki

import (
	"context"
	"errors"
)

// Errors every Store implementation returns (wrapped or not).
var (
	// ErrExists: Create found the name already taken; the stored value is unchanged.
	ErrExists = errors.New("already exists in the key store")
	// ErrNotFound: Get or Delete found nothing under the name.
	ErrNotFound = errors.New("not found in the key store")
)

// Names under which a cluster's keys and public certificates are stored.
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
)

// Names returns every name a bootstrapped cluster has in its store.
func Names() []string {
	return []string{
		KeyKubernetesCA, CertKubernetesCA, KeyEtcdCA, CertEtcdCA, KeyFrontProxyCA, CertFrontProxyCA,
		KeyServiceAccount, PublicServiceAccount, KeyEncryption,
	}
}

// Secret reports whether the value stored under name is private.
// Unknown names count as private.
func Secret(name string) bool {
	switch name {
	case CertKubernetesCA, CertEtcdCA, CertFrontProxyCA, PublicServiceAccount:
		return false
	}
	return true
}

// KeyName returns the name under which an authority's private key is stored.
func KeyName(ca CAName) string { return string(ca) + "-ca.key" }

// CertName returns the name under which an authority's certificate bundle is stored.
func CertName(ca CAName) string { return string(ca) + "-ca.crt" }

// Store keeps the private keys of one cluster. Implementations are safe for
// concurrent use and never log values.
type Store interface {
	// Get returns ErrNotFound when there is nothing under name.
	Get(ctx context.Context, name string) ([]byte, error)
	// Create writes only when the name is free, atomically, and returns ErrExists otherwise.
	Create(ctx context.Context, name string, value []byte) error
	// Delete returns ErrNotFound when there is nothing under name.
	Delete(ctx context.Context, name string) error
	// List returns the names present, sorted.
	List(ctx context.Context) ([]string, error)
}
