package ec2

import (
	"crypto"
	"crypto/ed25519"
	"crypto/md5"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

type keyPair struct {
	ID          string
	Name        string
	Type        string // rsa or ed25519
	Public      string // one line, as in authorized_keys
	Fingerprint string
	Created     time.Time
}

var keyPairActions = map[string]action{
	"ImportKeyPair":    writes(importKeyPair),
	"CreateKeyPair":    writes(createKeyPair),
	"DescribeKeyPairs": reads(describeKeyPairs),
	"DeleteKeyPair":    writes(deleteKeyPair),
}

// keyPair returns the key pair with a name, or nil.
func (t *tx) keyPair(name string) *keyPair {
	for _, k := range t.st.KeyPairs {
		if k.Name == name {
			return k
		}
	}
	return nil
}

func (t *tx) checkNewKeyPair(name string, specs []tagSpecification) error {
	if name == "" {
		return missing("KeyName")
	}
	if len(name) > 255 {
		return invalidValue("Invalid key name: %s", name)
	}
	if t.keyPair(name) != nil {
		return wire.Refuse("InvalidKeyPair.Duplicate", "The keypair already exists")
	}
	return checkSpecs(specs, kindKeyPair)
}

type keyPairResponse struct {
	Name        string `xml:"keyName"`
	Fingerprint string `xml:"keyFingerprint"`
	Material    string `xml:"keyMaterial,omitempty"`
	ID          string `xml:"keyPairId"`
	Tags        []tag  `xml:"tagSet>item"`
}

type importKeyPairRequest struct {
	request
	KeyName           string
	PublicKeyMaterial []byte
	TagSpecifications []tagSpecification `query:"TagSpecification"`
}

func importKeyPair(t *tx, in *importKeyPairRequest) (any, error) {
	if err := t.checkNewKeyPair(in.KeyName, in.TagSpecifications); err != nil {
		return nil, err
	}
	if len(in.PublicKeyMaterial) == 0 {
		return nil, missing("PublicKeyMaterial")
	}
	key, _, _, _, err := ssh.ParseAuthorizedKey(in.PublicKeyMaterial)
	if err != nil {
		return nil, wire.Refuse("InvalidKey.Format", "Key is not in valid OpenSSH public key format")
	}
	k := &keyPair{Name: in.KeyName, Public: strings.TrimSpace(string(in.PublicKeyMaterial))}
	switch key.Type() {
	case ssh.KeyAlgoED25519:
		k.Type, k.Fingerprint = "ed25519", sha256Fingerprint(key)
	case ssh.KeyAlgoRSA:
		k.Type = "rsa"
		// The fingerprint of an imported RSA key is the MD5 of its DER form (EC2 user guide,
		// "Verify the fingerprint").
		der, err := x509.MarshalPKIXPublicKey(key.(ssh.CryptoPublicKey).CryptoPublicKey())
		if err != nil {
			return nil, wire.Refuse("InvalidKey.Format", "Key is not in valid OpenSSH public key format")
		}
		sum := md5.Sum(der)
		k.Fingerprint = colons(sum[:])
	default:
		return nil, wire.Refuse("InvalidKey.Format", "Key is not in valid OpenSSH public key format")
	}
	return t.addKeyPair(k, in.TagSpecifications, "")
}

func (t *tx) addKeyPair(k *keyPair, specs []tagSpecification, material string) (any, error) {
	k.ID, k.Created = t.newID(kindKeyPair.prefix), t.now
	t.st.KeyPairs[k.ID] = k
	if err := t.applySpecs(specs, kindKeyPair, k.ID); err != nil {
		return nil, err
	}
	return keyPairResponse{k.Name, k.Fingerprint, material, k.ID, t.tags(k.ID)}, nil
}

type createKeyPairRequest struct {
	request
	KeyName           string
	KeyType           string
	KeyFormat         string
	TagSpecifications []tagSpecification `query:"TagSpecification"`
}

// createKeyPair makes a key. The private key is returned once and not kept.
func createKeyPair(t *tx, in *createKeyPairRequest) (any, error) {
	if err := t.checkNewKeyPair(in.KeyName, in.TagSpecifications); err != nil {
		return nil, err
	}
	if in.KeyFormat != "" && in.KeyFormat != "pem" {
		return nil, invalidValue("Value (%s) for parameter keyFormat is invalid.", in.KeyFormat)
	}
	k := &keyPair{Name: in.KeyName, Type: in.KeyType}
	var private crypto.Signer
	switch in.KeyType {
	case "", "rsa":
		k.Type = "rsa"
		key, err := rsa.GenerateKey(t.c.cfg.Rand, 2048)
		if err != nil {
			return nil, fmt.Errorf("making an RSA key: %w", err)
		}
		der, err := x509.MarshalPKCS8PrivateKey(key)
		if err != nil {
			return nil, fmt.Errorf("encoding an RSA key: %w", err)
		}
		sum := sha1.Sum(der)
		private, k.Fingerprint = key, colons(sum[:])
	case "ed25519":
		_, key, err := ed25519.GenerateKey(t.c.cfg.Rand)
		if err != nil {
			return nil, fmt.Errorf("making an ed25519 key: %w", err)
		}
		private = key
	default:
		return nil, invalidValue("Value (%s) for parameter keyType is invalid.", in.KeyType)
	}
	public, err := ssh.NewPublicKey(private.Public())
	if err != nil {
		return nil, fmt.Errorf("encoding a public key: %w", err)
	}
	if k.Fingerprint == "" {
		k.Fingerprint = sha256Fingerprint(public)
	}
	k.Public = strings.TrimSpace(string(ssh.MarshalAuthorizedKey(public))) + " " + k.Name
	block, err := ssh.MarshalPrivateKey(private, "")
	if err != nil {
		return nil, fmt.Errorf("encoding a private key: %w", err)
	}
	return t.addKeyPair(k, in.TagSpecifications, string(pem.EncodeToMemory(block)))
}

func colons(sum []byte) string {
	return strings.ReplaceAll(fmt.Sprintf("% x", sum), " ", ":")
}

// sha256Fingerprint returns EC2's fingerprint of an ed25519 key, in padded base64.
func sha256Fingerprint(k ssh.PublicKey) string {
	raw, _ := base64.RawStdEncoding.DecodeString(strings.TrimPrefix(ssh.FingerprintSHA256(k), "SHA256:"))
	return base64.StdEncoding.EncodeToString(raw)
}

type keyPairItem struct {
	ID          string    `xml:"keyPairId"`
	Name        string    `xml:"keyName"`
	Fingerprint string    `xml:"keyFingerprint"`
	Type        string    `xml:"keyType"`
	Public      string    `xml:"publicKey,omitempty"`
	Created     time.Time `xml:"createTime"`
	Tags        []tag     `xml:"tagSet>item"`
}

var keyPairFields = fields[keyPair]{
	"key-pair-id": func(_ *tx, k *keyPair) []string { return one(k.ID) },
	"key-name":    func(_ *tx, k *keyPair) []string { return one(k.Name) },
	"fingerprint": func(_ *tx, k *keyPair) []string { return one(k.Fingerprint) },
}

type describeKeyPairsRequest struct {
	request
	KeyNames         []string `query:"KeyName"`
	KeyPairIds       []string `query:"KeyPairId"`
	Filters          []filter `query:"Filter"`
	IncludePublicKey bool
}

type describeKeyPairsResponse struct {
	KeyPairs []keyPairItem `xml:"keySet>item"`
}

func describeKeyPairs(t *tx, in *describeKeyPairsRequest) (any, error) {
	ids := in.KeyPairIds
	for _, name := range in.KeyNames {
		k := t.keyPair(name)
		if k == nil {
			return nil, kindKeyPair.notFoundError(name)
		}
		ids = append(ids, k.ID)
	}
	page, _, err := selection[keyPair]{kindKeyPair, t.st.KeyPairs, "keyPairId", ids, keyPairFields, describeRequest{Filters: in.Filters}, 5}.run(t)
	if err != nil {
		return nil, err
	}
	var out describeKeyPairsResponse
	for _, k := range page {
		item := keyPairItem{k.ID, k.Name, k.Fingerprint, k.Type, "", k.Created, t.tags(k.ID)}
		if in.IncludePublicKey {
			item.Public = k.Public
		}
		out.KeyPairs = append(out.KeyPairs, item)
	}
	return out, nil
}

type deleteKeyPairRequest struct {
	request
	KeyName   string
	KeyPairId string
}

// deleteKeyPair succeeds for a key pair that does not exist, as on EC2.
func deleteKeyPair(t *tx, in *deleteKeyPairRequest) (any, error) {
	if in.KeyName == "" && in.KeyPairId == "" {
		return nil, missing("KeyName")
	}
	for id, k := range t.st.KeyPairs {
		if k.Name == in.KeyName || id == in.KeyPairId {
			t.drop(id)
			delete(t.st.KeyPairs, id)
			return struct {
				Return bool   `xml:"return"`
				ID     string `xml:"keyPairId"`
			}{true, id}, nil
		}
	}
	return done{true}, nil
}
