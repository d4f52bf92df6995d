package workspace

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"os"
	"strings"
)

// SSHKey makes sure that there is a private key in a file, mode 0600, for the
// provider to reach machines with.
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

// Exports returns the variables that a shell text exports, such as what
// "k8s-lab env" prints, as KEY=value in the order given.
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
