package foreign

import (
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	const body = "MHcCAQEEIBxhZ3VhcmQtbm90LWEtcmVhbC1rZXktYXQtYWxsLW5vdC1yZWFs"
	for _, tt := range []struct{ name, in, keep string }{
		{"PEM", "a\n-----BEGIN EC PRIVATE KEY-----\n" + body + "\n-----END EC PRIVATE KEY-----\nz", "a\n|\nz"},
		{"PEM PKCS 8", "-----BEGIN PRIVATE KEY-----\n" + body + "\n-----END PRIVATE KEY-----", ""},
		{"PEM in one line", `x "-----BEGIN RSA PRIVATE KEY-----\n` + body + `\n-----END RSA PRIVATE KEY-----\n" y`, `x "|\n" y`},
		{"PEM cut off at the end", "a -----BEGIN EC PRIVATE KEY-----\n" + body, "a "},
		{"PEM cut off at the beginning", body + "\n-----END EC PRIVATE KEY-----\nz", "\nz"},
		{"bearer token", "Authorization: Bearer " + body + "\nz", "Authorization: Bearer |z"},
		{"JSON web token", "token eyJhbGciOiJSUzI1NiIs.eyJpc3MiOiJrdWJlcm5ldGVz." + body + " z", " z"},
		{"kubeconfig", "client-key-data: " + body + "\nname: z", "client-key-data: |name: z"},
		{"encryption key", "- name: key1\n  secret: " + body + "=\nz", "- name: key1|z"},
		{"base64 of PEM", "data: LS0tLS1CRUdJTiBFQyBQUklWQVRFIEtFWS0tLS0t" + body + "\nz", "data: |z"},
	} {
		got := redact(tt.in)
		if strings.Contains(got, body[:20]) {
			t.Errorf("%s: %q still shows the secret", tt.name, got)
		}
		for _, part := range strings.Split(tt.keep, "|") {
			if !strings.Contains(got, part) {
				t.Errorf("%s: %q lost %q", tt.name, got, part)
			}
		}
	}
	for _, plain := range []string{
		`etcd.service: Main process exited, code=exited, status=1/FAILURE`,
		`"Failed to get secret" secret="kube-system/bootstrap" err="not found"`,
		`open /etc/kubernetes/pki/apiserver.key: permission denied`,
		`sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08`,
	} {
		if got := redact(plain); got != plain {
			t.Errorf("%q became %q", plain, got)
		}
	}
}
