package main

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// redactor replaces texts that identify the account. The same text always becomes the same word, so
// that a report can still be followed.
type redactor struct {
	secrets []secret
	words   map[string]string // text -> its word
	counts  map[string]int    // kind -> number of its words
}

type secret struct{ kind, text string }

// pattern is a form of text that is replaced. A nil check takes every match.
type pattern struct {
	kind  string
	form  *regexp.Regexp
	check func(string) bool
}

// patterns are applied in this order: an ARN has an account and may have an address.
var patterns = []pattern{
	{"pem", regexp.MustCompile(`(?s)-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----`), nil},
	{"ssh-key", regexp.MustCompile(`\b(?:ssh-(?:ed25519|rsa)|ecdsa-sha2-nistp\d+) AAAA[0-9A-Za-z+/=]+`), nil},
	{"arn", regexp.MustCompile(`\barn:aws[a-z-]*:[^\s"'<>,;)\]]+`), nil},
	{"email", regexp.MustCompile(`\b[\w.+-]+@[\w-]+\.[\w.-]+\b`), nil},
	{"key-id", regexp.MustCompile(`\bA(?:KIA|SIA|ROA|IDA|GPA|IPA|NPA)[A-Z0-9]{5,}\b`), nil},
	{"token", regexp.MustCompile(`[0-9A-Za-z+/=_-]{40,}`), nil}, // secret keys, session tokens, encoded messages
	{"account", regexp.MustCompile(`\b\d{12}\b`), nil},
	{"host", regexp.MustCompile(`\b(?:ec2|ip)(?:-\d{1,3}){4}\b`), nil}, // EC2's names have the address
	{"ip", regexp.MustCompile(`\b\d{1,3}(?:\.\d{1,3}){3}\b`), isAddress},
	{"ip", regexp.MustCompile(`[0-9A-Fa-f]*:[0-9A-Fa-f:]+[0-9A-Fa-f]|[0-9A-Fa-f]+::`), isAddress},
	{"id", regexp.MustCompile(`\b(?:i|vpc|subnet|igw|rtb|rtbassoc|sg|sgr|eni|eni-attach|vol|eipalloc|eipassoc|r|acl|dopt)-[0-9a-f]{8,17}\b`), nil},
}

func isAddress(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

func newRedactor() *redactor { return &redactor{words: map[string]string{}, counts: map[string]int{}} }

// known adds a text that must not appear. Short texts, such as an empty session token, are ignored:
// they would be found everywhere.
func (r *redactor) known(kind, text string) {
	if len(text) > 3 {
		r.secrets = append(r.secrets, secret{kind, text})
	}
}

// text returns s without known texts and without matches of the patterns.
func (r *redactor) text(s string) string {
	for _, k := range r.secrets {
		s = strings.ReplaceAll(s, k.text, r.word(k.kind, k.text))
	}
	for _, p := range patterns {
		s = p.form.ReplaceAllStringFunc(s, func(match string) string {
			if p.check != nil && !p.check(match) {
				return match
			}
			return r.word(p.kind, match)
		})
	}
	return s
}

func (r *redactor) word(kind, text string) string {
	if r.words[text] == "" {
		r.counts[kind]++
		r.words[text] = fmt.Sprintf("[%s %d]", kind, r.counts[kind])
	}
	return r.words[text]
}
