package pki

import (
	"bytes"
	"encoding/base64"
	"fmt"
)

// CheckValues returns why values are not the keys of a cluster with these generations: one is
// missing, cannot be read, or does not belong to its certificate. Values that no generation has are
// an error as well. The error has nothing of a value.
func CheckValues(g Generations, values map[string][]byte) error {
	names := Names(g)
	for _, name := range names {
		if len(values[name]) == 0 {
			return fmt.Errorf("%s is missing", name)
		}
	}
	if len(values) != len(names) {
		return fmt.Errorf("there are %d entries, and these generations have %d", len(values), len(names))
	}
	stored, err := ParseGenerations(string(values[NameGenerations]))
	if err != nil {
		return err
	}
	if !stored.Equal(g) {
		return fmt.Errorf("the entry %s lists other generations", NameGenerations)
	}
	for _, k := range Kinds() {
		for _, n := range g.Of(k) {
			secret, public := SecretName(k, n), PublicName(k, n)
			if err := checkPair(k, secret, values[secret], public, values[public]); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkPair returns why a private value and its public part are no key of a kind.
func checkPair(k Kind, name string, value []byte, publicName string, public []byte) error {
	switch k {
	case KindEncryption:
		return checkEncryptionKey(name, value)
	case KindServiceAccount:
		want, err := publicPart(name, value)
		if err != nil {
			return err
		}
		return checkPublicPart(name, want, publicName, public)
	}
	if _, err := LoadAuthority(KeyPair{CertPEM: public, KeyPEM: value}); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// publicPart returns the public key of a private key.
func publicPart(name string, value []byte) ([]byte, error) {
	key, err := parseKey(value)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return publicKeyPEM(key)
}

func checkPublicPart(name string, want []byte, publicName string, public []byte) error {
	if !bytes.Equal(bytes.TrimSpace(want), bytes.TrimSpace(public)) {
		return fmt.Errorf("%s does not belong to %s", publicName, name)
	}
	return nil
}

func checkEncryptionKey(name string, value []byte) error {
	raw, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(value)))
	if err != nil || len(raw) != encryptionKeyBytes {
		return fmt.Errorf("%s is not %d bytes in base64", name, encryptionKeyBytes)
	}
	return nil
}
