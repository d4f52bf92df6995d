package component

import (
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// encryptedResource is the resource whose objects are encrypted in etcd.
const encryptedResource = "secrets"

// EncryptedPrefix is the beginning of every value in etcd that is encrypted with any generation of
// the key (k8s.io/apiserver/pkg/server/options/encryptionconfig, secretboxTransformerPrefixV1).
const EncryptedPrefix = "k8s:enc:secretbox:v1:"

// PlainPrefix is the beginning of values in etcd that are not encrypted: the magic number of
// objects in Protocol Buffers (k8s.io/apimachinery/pkg/runtime/serializer/protobuf).
const PlainPrefix = "k8s\x00"

// EncryptedBy returns the prefix of values that are encrypted with one generation of the key.
func EncryptedBy(generation int) string {
	return EncryptedPrefix + pki.EncryptionKeyName(generation) + ":"
}

// EncryptedUnder returns the prefix of the etcd keys of encrypted objects, which continue with
// "<namespace>/<name>"; empty if the API servers have an encryption configuration that is not this
// project's.
func (s ControlPlaneSpec) EncryptedUnder() string {
	if len(s.APIServer.Args["encryption-provider-config"]) > 0 {
		return ""
	}
	prefix := "/registry"
	if v := s.APIServer.Args["etcd-prefix"]; len(v) > 0 {
		prefix = "/" + strings.Trim(v[len(v)-1], "/")
	}
	return prefix + "/" + encryptedResource + "/"
}
