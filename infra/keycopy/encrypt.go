package keycopy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
)

// The errors of Decrypt, wrapped.
var (
	// ErrIdentity: the identity is none, or not that of a recipient of the copy.
	ErrIdentity = errors.New("wrong identity")
	// ErrForeign: the data are no copy of keys that this version reads.
	ErrForeign = errors.New("not a copy of keys")
	// ErrDamaged: the data were a copy, and are not whole.
	ErrDamaged = errors.New("the copy is damaged")
)

// MaxSize bounds a copy in bytes, encrypted or not. A copy with three generations of every key has
// about 20 KiB.
const MaxSize = 1 << 20

// intro begins every file of age.
const intro = "age-encryption.org/v1\n"

// Prefixes of age's own keys. Those of its plugins are not among them.
const (
	classicRecipient = "age1"
	quantumRecipient = "age1pq1"
	identityPrefix   = "AGE-SECRET-KEY-"
)

// Encrypt encrypts a copy for recipients. The identity of any of them decrypts it. Two results are
// never the same.
func Encrypt(c *Copy, recipients []string) ([]byte, error) {
	to, err := parseRecipients(recipients)
	if err != nil {
		return nil, err
	}
	plain, err := c.marshal()
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w, err := age.Encrypt(&out, to...)
	if err == nil {
		_, err = w.Write(plain)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		return nil, fmt.Errorf("encrypt the copy: %w", err)
	}
	return out.Bytes(), nil
}

// Decrypt decrypts and checks a copy. identity is one or more lines as age-keygen prints them; those
// that begin with # are comments. The error wraps ErrIdentity, ErrForeign or ErrDamaged.
func Decrypt(data []byte, identity string) (*Copy, error) {
	ids, err := parseIdentities(identity)
	if err != nil {
		return nil, err
	}
	if !bytes.HasPrefix(data, []byte(intro)) {
		return nil, fmt.Errorf("%w: it is not encrypted with age", ErrForeign)
	}
	plain, err := decrypt(data, ids)
	var none *age.NoIdentityMatchError
	switch {
	case errors.As(err, &none):
		return nil, fmt.Errorf("%w: the copy is encrypted for others", ErrIdentity)
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return unmarshal(plain)
}

func decrypt(data []byte, ids []age.Identity) ([]byte, error) {
	r, err := age.Decrypt(bytes.NewReader(data), ids...)
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err == nil && len(plain) > MaxSize {
		err = fmt.Errorf("it has more than %d bytes", MaxSize)
	}
	return plain, err
}

// CheckRecipient returns what is wrong with a recipient. It quotes only what begins like one: what
// does not may be a secret.
func CheckRecipient(s string) error {
	_, err := parseRecipient(s)
	return err
}

// CheckRecipients returns what is wrong with recipients together: there is none, or they cannot be
// mixed.
func CheckRecipients(list []string) error {
	to, err := parseRecipients(list)
	if err == nil {
		_, err = age.Encrypt(io.Discard, to...)
	}
	return err
}

// CheckIdentity returns what is wrong with an identity, without quoting any of it.
func CheckIdentity(s string) error {
	_, err := parseIdentities(s)
	return err
}

func parseRecipients(list []string) ([]age.Recipient, error) {
	if len(list) == 0 {
		return nil, errors.New("there is no recipient: nobody could decrypt the copy")
	}
	var out []age.Recipient
	for _, s := range list {
		r, err := parseRecipient(s)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func parseRecipient(s string) (r age.Recipient, err error) {
	switch {
	case strings.Contains(strings.ToUpper(s), identityPrefix):
		return nil, errors.New("this is an identity, which is secret: write its recipient, which `age-keygen -y` prints, and make a new identity if somebody may have seen this one")
	case strings.HasPrefix(s, quantumRecipient):
		r, err = age.ParseHybridRecipient(s)
	case strings.HasPrefix(s, classicRecipient):
		r, err = age.ParseX25519Recipient(s)
	default:
		return nil, errors.New("an age recipient begins with age1: `age-keygen` prints one. SSH keys and the recipients of age's plugins are not supported")
	}
	if err != nil {
		return nil, fmt.Errorf("not an age recipient, as `age-keygen` prints it: %w", err)
	}
	return r, nil
}

// parseIdentities passes no error of age on: it may have a part of the identity.
func parseIdentities(s string) ([]age.Identity, error) {
	ids, err := age.ParseIdentities(strings.NewReader(strings.TrimSpace(s) + "\n"))
	if err != nil {
		return nil, fmt.Errorf("%w: this is not an age identity, which begins with %s1 or %sPQ-1, as `age-keygen` prints it", ErrIdentity, identityPrefix, identityPrefix)
	}
	return ids, nil
}
