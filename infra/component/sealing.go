package component

import (
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// encryptedResource is the resource of which every object is sealed before it is stored.
const encryptedResource = "secrets"

// SealPrefix begins every value that any generation of the encryption key
// sealed (k8s.io/apiserver/pkg/server/options/encryptionconfig,
// secretboxTransformerPrefixV1).
const SealPrefix = "k8s:enc:secretbox:v1:"

// PlainPrefix begins values that nothing sealed: the mark of objects stored as
// Protocol Buffers (k8s.io/apimachinery/pkg/runtime/serializer/protobuf).
const PlainPrefix = "k8s\x00"

// SealedBy begins the values that one generation of the encryption key sealed.
func SealedBy(generation int) string { return SealPrefix + pki.EncryptionKeyName(generation) + ":" }

// SealedUnder is where in etcd the sealed objects lie, as
// "<namespace>/<name>"; empty when the API servers were given an encryption
// configuration other than the provider's.
func (s ControlPlaneSpec) SealedUnder() string {
	if len(s.APIServer.Args["encryption-provider-config"]) > 0 {
		return ""
	}
	prefix := "/registry"
	if v := s.APIServer.Args["etcd-prefix"]; len(v) > 0 {
		prefix = "/" + strings.Trim(v[len(v)-1], "/")
	}
	return prefix + "/" + encryptedResource + "/"
}
