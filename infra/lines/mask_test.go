package lines

import (
	"regexp"
	"testing"
)

func TestMask(t *testing.T) {
	plain := regexp.MustCompile(`^([0-9]+[a-z]*|true)$`).MatchString
	const wanted = "[Service]\nRestartSec=1\n  server controller-0 10.240.0.10:6443 inter 1s\n"
	for found, want := range map[string]string{
		wanted:          wanted,
		"RestartSec=30": "RestartSec=30",
		"  server controller-0 10.240.0.10:6443 inter 30s": "  server controller-0 10.240.0.10:6443 inter 30s",
		"nonsense: true":           "nonsense: true",
		"--v=6 \\":                 "--v=6 \\",
		"password = 'S3cret'":      "password = (hidden)",
		"  password: hunter2":      "  password: (hidden)",
		"--oidc-client-secret=x1y": "--oidc-client-secret=(hidden)",
		"--etcd-servers=https://root:S3cret@10.0.0.1": "--etcd-servers=(hidden)",
		"stats auth admin:S3cret":                     "(hidden) (hidden) admin:(hidden)",
		"- S3cret":                                    "- (hidden)",
		"c2VjcmV0cw==":                                "(hidden)",
		"https://root:pw@host":                        "https:(hidden)",
		"# by hand":                                   "# (hidden) (hidden)",
	} {
		if got := Mask(found, wanted, plain); got != want {
			t.Errorf("%q became %q, wanted %q", found, got, want)
		}
	}
}
