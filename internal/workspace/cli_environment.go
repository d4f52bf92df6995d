package workspace

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"os"
	"strings"

	"golang.org/x/crypto/ssh"
)

// SSHKey creates a private key in a file, with mode 0600 and in the form of ssh-keygen(1), for the
// provider's connections to machines. It keeps a key that exists.
func SSHKey(name string) error {
	if _, err := os.Stat(name); err == nil {
		return nil
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if err != nil {
		return err
	}
	return os.WriteFile(name, pem.EncodeToMemory(block), 0o600)
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
