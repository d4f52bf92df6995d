package foreign

import "regexp"

// secrets are the forms of secrets in what programs print: PEM private keys (also cut at either
// end of an excerpt, or with escaped newlines), bearer tokens, JSON web tokens, and the credential
// fields of kubeconfigs and EncryptionConfigurations.
var secrets = []struct {
	shape *regexp.Regexp
	to    string
}{
	{regexp.MustCompile(`(?s)-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(-----END [A-Z0-9 ]*PRIVATE KEY-----|$)`), "[private key redacted]"},
	{regexp.MustCompile(`(?s)^.*-----END [A-Z0-9 ]*PRIVATE KEY-----`), "[private key redacted]"},
	{regexp.MustCompile(`\bLS0tLS1CRUdJTi[A-Za-z0-9+/=]{40,}`), "[base64 PEM redacted]"},
	{regexp.MustCompile(`(?i)\b(bearer|basic)(\s+)[A-Za-z0-9._~+/=-]{8,}`), "${1}${2}[redacted]"},
	{regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*`), "[token redacted]"},
	{regexp.MustCompile(`(?i)("?\b(?:client-key-data|token|password|secretAccessKey|sessionToken)"?\s*[:=]\s*"?)[A-Za-z0-9._~+/=-]{8,}`), "${1}[redacted]"},
	// Not the name of a Secret in a log line: a key is base64 of 16 bytes or more.
	{regexp.MustCompile(`(?i)("?\bsecret"?\s*[:=]\s*"?)[A-Za-z0-9+/]{22,}={0,2}`), "${1}[redacted]"},
}

// redact replaces what looks like a secret.
func redact(s string) string {
	for _, r := range secrets {
		s = r.shape.ReplaceAllString(s, r.to)
	}
	return s
}
