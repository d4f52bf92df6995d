package provider

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// accountID accepts the id of an AWS account.
func accountID() validator.String {
	return stringvalidator.RegexMatches(regexp.MustCompile(`^[0-9]{12}$`), "the id of an AWS account has 12 digits")
}

func privateKey() validator.String {
	return tf.Check("an SSH private key without a passphrase", func(s string) error {
		if _, err := ssh.ParsePrivateKey(keyText(s)); err != nil {
			return errors.New(keyProblem(err))
		}
		return nil
	})
}

// keyText returns a private key as it was before it went through an environment variable or a JSON file: some write
// its line breaks as \n there.
func keyText(s string) []byte {
	if s = strings.TrimSpace(s); !strings.Contains(s, "\n") {
		s = strings.TrimSpace(strings.NewReplacer(`\r\n`, "\n", `\n`, "\n").Replace(s))
	}
	return []byte(s + "\n")
}

// agentKey accepts what can name a key of an SSH agent. It never quotes a private key.
func agentKey() validator.String {
	return tf.Check("the comment, the SHA256 fingerprint or the public key of a key of the SSH agent", func(s string) error {
		s = strings.TrimSpace(s)
		_, _, _, _, public := ssh.ParseAuthorizedKey([]byte(s))
		switch {
		case s == "":
			return errors.New("it names no key: remove it, or write what ssh-add -l prints for the key")
		case strings.Contains(s, "PRIVATE KEY"):
			return errors.New("this is a private key; write the public key, the fingerprint or the comment, or use ssh.private_key")
		case strings.Contains(s, "\n"):
			return errors.New("it has several lines, and one key is used")
		case strings.HasPrefix(s, "SHA256:") && !sha256Fingerprint.MatchString(s):
			return fmt.Errorf("%q is not a SHA256 fingerprint: copy it from ssh-add -l", s)
		case strings.HasPrefix(s, "MD5:"):
			return errors.New("MD5 fingerprints are not unique: write the SHA256 fingerprint, as ssh-add -l prints it")
		case public != nil && strings.Contains(s, " AAAA"):
			return fmt.Errorf("not an SSH public key: %w", public)
		}
		return nil
	})
}

var sha256Fingerprint = regexp.MustCompile(`^SHA256:[A-Za-z0-9+/]{43}$`)

// keyProblem says what is wrong with a private key, without quoting any of it.
func keyProblem(err error) string {
	var passphrase *ssh.PassphraseMissingError
	if errors.As(err, &passphrase) {
		return "The key has a passphrase. Use an SSH agent (ssh.agent), or a key without a passphrase."
	}
	return "The value is not a private key in PEM or OpenSSH format. A common reason is a line break that was lost or indented, for example in an environment variable."
}
