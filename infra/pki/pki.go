// Package pki makes and checks the keys and certificates of a cluster: certificate authorities,
// leaf certificates, the service-account key pair and the key that encrypts secrets in etcd.
//
// It is pure: the clock and the random source are arguments. What may not enter: files, networks,
// machines, and stores that do I/O, which implement the Store interface elsewhere. Printing a type
// of this package shows no private key.
package pki

import (
	"fmt"
	"log/slog"
	"net/netip"
	"time"
)

// CAName names one of the cluster's certificate authorities.
type CAName string

// The three authorities of a cluster.
const (
	KubernetesCA CAName = "kubernetes"
	EtcdCA       CAName = "etcd"
	FrontProxyCA CAName = "front-proxy"
)

// Kind returns the kind of the authority's key, empty when the name is unknown.
func (c CAName) Kind() Kind {
	switch c {
	case KubernetesCA:
		return KindKubernetesCA
	case EtcdCA:
		return KindEtcdCA
	case FrontProxyCA:
		return KindFrontProxyCA
	}
	return ""
}

// Defaults for validity and renewal.
const (
	DefaultCAValidity   = 10 * 365 * 24 * time.Hour
	DefaultValidity     = 365 * 24 * time.Hour
	DefaultEarlyRenewal = 60 * 24 * time.Hour
	// Backdate is how far NotBefore lies in the past, so that a machine whose clock is behind
	// accepts a new certificate.
	Backdate = 5 * time.Minute
)

// Request is the content of a leaf certificate.
type Request struct {
	CommonName     string
	Organizations  []string
	DNSNames       []string
	IPs            []netip.Addr
	Server, Client bool
	Validity       time.Duration // zero means DefaultValidity
}

// KeyPair is a certificate and its private key, in PEM. Printing it shows no key.
type KeyPair struct {
	CertPEM []byte
	KeyPEM  []byte
}

const redacted = "[redacted]"

// String returns only the certificate's size.
func (k KeyPair) String() string {
	return fmt.Sprintf("KeyPair{CertPEM: %d bytes, KeyPEM: %s}", len(k.CertPEM), redacted)
}

// GoString is String, for %#v.
func (k KeyPair) GoString() string { return "pki." + k.String() }

// LogValue is String, for log/slog.
func (k KeyPair) LogValue() slog.Value { return slog.StringValue(k.String()) }

// Slot is a certificate's place on a machine and its wanted content.
type Slot struct {
	Name         string // for people: "apiserver"
	CertPath     string
	KeyPath      string
	CA           CAName
	Request      Request
	Owner, Group string // of both files; empty means root
	KeyMode      uint32 // permission bits of the key; the certificate is 0644
	EarlyRenewal time.Duration
}

// Ref is a reference to a cluster's PKI: public certificates and where the private keys are. With
// Store "state" it holds the keys themselves in Keys and is secret; with any other store it holds
// no secrets.
type Ref struct {
	Cluster  string `json:"cluster"`
	Store    string `json:"store"` // StoreSSM or StoreState
	Prefix   string `json:"prefix,omitempty"`
	KMSKeyID string `json:"kms_key_id,omitempty"`
	Region   string `json:"region,omitempty"`

	KubernetesCA            string `json:"kubernetes_ca"` // PEM bundle, the issuing certificate first
	EtcdCA                  string `json:"etcd_ca"`
	FrontProxyCA            string `json:"front_proxy_ca"`
	KubernetesCAChain       string `json:"kubernetes_ca_chain,omitempty"` // PEM, what is above given authorities
	ServiceAccountPublicKey string `json:"service_account_public_key"`    // PEM bundle, the signing key first
	// Generations of the keys, in the order of the bundles.
	Generations Generations `json:"generations"`

	Keys map[string]string `json:"keys,omitempty"` // only with StoreState: name in the store -> value
}

// Values of Ref.Store.
const (
	StoreSSM   = "ssm"
	StoreState = "state"
)

// String returns the reference without keys.
func (r Ref) String() string {
	keys := ""
	if len(r.Keys) > 0 {
		keys = ", Keys: " + redacted
	}
	return fmt.Sprintf("Ref{Cluster: %q, Store: %q, Prefix: %q, Region: %q%s}", r.Cluster, r.Store, r.Prefix, r.Region, keys)
}

// GoString is String, for %#v.
func (r Ref) GoString() string { return "pki." + r.String() }

// LogValue is String, for log/slog.
func (r Ref) LogValue() slog.Value { return slog.StringValue(r.String()) }
