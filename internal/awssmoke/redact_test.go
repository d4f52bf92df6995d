package main

import (
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"arn:aws:sts::123456789012:assumed-role/ops/ann, in account 123456789012", "[arn 1], in account [account 1]"},
		{"arn:aws-us-gov:ec2:us-gov-west-1:123456789012:instance/i-0123456789abcdef0 x", "[arn 1] x"},
		{"from 198.51.100.7/32 to 10.240.0.10:6443 and 198.51.100.7", "from [ip 1]/32 to [ip 2]:6443 and [ip 1]"},
		{"https://203.0.113.10:6443/readyz", "https://[ip 1]:6443/readyz"},
		{"Kubernetes 1.36.4 at 12:30:45, 3.10.2", "Kubernetes 1.36.4 at 12:30:45, 3.10.2"},
		{"dial tcp [2001:db8::1]:22 and ::1", "dial tcp [[ip 1]]:22 and [ip 2]"},
		{"999.1.1.1", "999.1.1.1"},
		{"ec2-203-0-113-10.eu-central-1.compute.amazonaws.com ip-10-240-0-10", "[host 1].eu-central-1.compute.amazonaws.com [host 2]"},
		{"key AKIAIOSFODNN7EXAMPLE or ASIAIOSFODNN7EXAMPLE", "key [key-id 1] or [key-id 2]"},
		{"secret wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY.", "secret [token 1]."},
		{"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample comment", "[ssh-key 1] comment"},
		{"a\n-----BEGIN PRIVATE KEY-----\nMC4C\n-----END PRIVATE KEY-----\nb", "a\n[pem 1]\nb"},
		{"mail ann@example.com", "mail [email 1]"},
		{"i-0123456789abcdef0 in vpc-0123456789abcdef0, i-0123456789abcdef0", "[id 1] in [id 2], [id 1]"},
		{"ami-0123456789abcdef0 is public", "ami-0123456789abcdef0 is public"},
		{"k8s_machine.controller[0]: InvalidInstanceID.NotFound", "k8s_machine.controller[0]: InvalidInstanceID.NotFound"},
	} {
		if got := newRedactor().text(tt.text); got != tt.want {
			t.Errorf("%q\nbecomes %q\nwanted  %q", tt.text, got, tt.want)
		}
	}
}

// TestRedactKnown replaces what no pattern finds.
func TestRedactKnown(t *testing.T) {
	r := newRedactor()
	r.known("home", "/home/ann")
	r.known("credential", "local-secret")
	r.known("credential", "") // no session token
	if got, want := r.text("/home/ann/x has local-secret"), "[home 1]/x has [credential 1]"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestRedactTwice redacts a text that is redacted already, as parts of a report are.
func TestRedactTwice(t *testing.T) {
	r := newRedactor()
	once := r.text("10.0.0.1 arn:aws:iam::123456789012:user/ann 2001:db8::1 i-0123456789abcdef0 " + strings.Repeat("A", 60))
	if twice := r.text(once); twice != once {
		t.Errorf("%q, then %q", once, twice)
	}
}
