package workspace

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"strings"
)

// SSHKey creates a private key in a file, with mode 0600, for the provider's connections to
// machines. It keeps a key that exists.
func SSHKey(name string) error {
	if _, err := os.Stat(name); err == nil {
		return nil
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return os.WriteFile(name, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), 0o600)
}

// Exports returns the variables that a shell script exports, such as the output of "k8s-lab env",
// as KEY=value in the order of the script.
func Exports(text string) []string {
	var env []string
	for line := range strings.Lines(text) {
		if kv, ok := strings.CutPrefix(strings.TrimSpace(line), "export "); ok {
			k, v, _ := strings.Cut(kv, "=")
			env = append(env, k+"="+strings.Trim(v, `'"`))
		}
	}
	return env
}
