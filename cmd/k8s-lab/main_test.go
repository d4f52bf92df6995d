package main

import (
	"strings"
	"testing"
)

func TestCommandLine(t *testing.T) {
	t.Setenv("K8S_LAB_STATE_DIR", t.TempDir()+"/nothing")
	for _, tc := range []struct {
		args, out, err string
	}{
		{"", "Usage: k8s-lab", ""},
		{"help", "Usage: k8s-lab", ""},
		{"up --help", "Usage: k8s-lab", ""},
		{"fly", "", `there is no command "fly"`},
		{"--speed 9 up", "", "flag provided but not defined: -speed"},
		{"status now", "", `status takes no argument "now"`},
		{"status", "", "there is no lab in"},
		{"env", "", "there is no lab in"},
		{"env --tfvars", "", "there is no lab in"},
		{"--state-dir /nonexistent/lab status", "", "there is no lab in /nonexistent/lab"},
		{"status --state-dir /nonexistent/lab", "", "there is no lab in /nonexistent/lab"},
		{"fault", "", "fault needs list, clear or a kind of fault"},
		{"fault throttle every", "", `"every" is not of the form key=value`},
		{"fault clear", "", "there is no lab in"},
		{"iam", "", "iam needs list, user NAME, role NAME or delete (user|role) NAME"},
		{"iam group x", "", "iam needs list, user NAME, role NAME or delete (user|role) NAME"},
		{"iam delete group x", "", "iam needs list, user NAME, role NAME or delete (user|role) NAME"},
		{"iam delete user x", "", "there is no lab in"},
		{"iam user x --trust /nonexistent.json", "", "flag provided but not defined: -trust"},
		{"iam role x --trust /nonexistent.json", "", "no such file"},
		{"iam user x --policy /nonexistent.json", "", "no such file"},
		{"iam list", "", "there is no lab in"},
		{"artifacts --tool hammer", "", `there is no tool "hammer"`},
		{"down", "nothing is left", ""},
	} {
		t.Run(tc.args, func(t *testing.T) {
			var out, progress strings.Builder
			err := run(t.Context(), strings.Fields(tc.args), &out, &progress)
			if tc.err == "" && err != nil || tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)) {
				t.Errorf("got the error %v, want %q", err, tc.err)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("the error is not one sentence: %v", err)
			}
			if !strings.Contains(out.String(), tc.out) {
				t.Errorf("got %q, want %q", out.String(), tc.out)
			}
		})
	}
}

func TestShellQuote(t *testing.T) {
	for in, want := range map[string]string{
		"http://127.0.0.1:4566": "http://127.0.0.1:4566", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$HOME": "'$HOME'",
	} {
		if got := shellQuote(in); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
}
