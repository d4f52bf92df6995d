package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestCommandLine(t *testing.T) {
	t.Setenv("K8S_LAB_STATE_DIR", t.TempDir()+"/nothing")
	for _, tc := range []struct {
		args, out, err string
	}{
		{"", "runs a local EC2", ""},
		{"help", "Available Commands:", ""},
		{"up --help", "--quota", ""},
		{"help fault throttle", "every n-th call", ""},
		{"fault", "Available Commands:", ""},
		{"iam", "Available Commands:", ""},
		{"fly", "", `there is no command "fly"`},
		{"fault fly", "", `there is no command "fault fly"`},
		{"--speed 9 up", "", "unknown flag: --speed"},
		{"status now", "", `status takes no argument "now"`},
		{"status", "", "there is no lab in"},
		{"status --json", "", "there is no lab in"},
		{"env", "", "there is no lab in"},
		{"env --tfvars", "", "there is no lab in"},
		{"--state-dir /nonexistent/lab status", "", "there is no lab in /nonexistent/lab"},
		{"status --state-dir=/nonexistent/lab", "", "there is no lab in /nonexistent/lab"},
		{"up --quota vcpus=-1", "", "a quota is a positive number"},
		{"up --machines vms", "", `there are no machines of the kind "vms": it is container or vm`},
		{"fault throttle every", "", `"every" is not of the form key=value`},
		{"fault throttle speed=1", "", `a throttle fault has no "speed"`},
		{"fault clear", "", "there is no lab in"},
		{"iam group x", "", `there is no command "iam group"`},
		{"iam user", "", "iam user needs one name"},
		{"iam delete group x", "", `there is no command "iam delete group"`},
		{"iam delete user x", "", "there is no lab in"},
		{"iam user x --trust /nonexistent.json", "", "unknown flag: --trust"},
		{"iam role x --trust /nonexistent.json", "", "no such file"},
		{"iam user x --policy /nonexistent.json", "", "no such file"},
		{"iam instance-profile x", "", `required flag(s) "role" not set`},
		{"iam instance-profile --role y", "", "instance-profile needs one name"},
		{"iam instance-profile x --role y", "", "there is no lab in"},
		{"iam delete instance-profile x", "", "there is no lab in"},
		{"iam role x --role y", "", "unknown flag: --role"},
		{"iam list", "", "there is no lab in"},
		{"exec", "", "exec needs the name or id of an instance"},
		{"exec worker-0 -- ls -l", "", "there is no lab in"},
		{"ssh -i /nonexistent worker-0", "", "there is no lab in"},
		{"console", "", "console needs the name or id of an instance"},
		{"console worker-0 -f", "", "there is no lab in"},
		{"console worker-0 worker-1", "", "console takes one instance"},
		{"console -f worker-0", "", "there is no lab in"},
		{"logs", "", "there is no"},
		{"logs --calls", "", "there is no"},
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

// TestHelp checks that every command has a description, and an example if it takes flags or
// arguments.
func TestHelp(t *testing.T) {
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			return
		}
		if cmd.Short == "" {
			t.Errorf("%s has no description", cmd.CommandPath())
		}
		if cmd.HasParent() && cmd.HasLocalFlags() && cmd.Example == "" {
			t.Errorf("%s has flags and no example", cmd.CommandPath())
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check((&cli{}).root())
}

// TestFaultKinds checks that the command line has all fields of each kind of fault in its example.
func TestFaultKinds(t *testing.T) {
	for _, k := range kinds {
		words := strings.Fields(k.example)
		if words[0] != k.name {
			t.Errorf("the example of %s is of %s", k.name, words[0])
		}
		for _, w := range words[1:] {
			key, _, _ := strings.Cut(w, "=")
			if !slices.ContainsFunc(k.fields, func(f field) bool { return f.key == key }) {
				t.Errorf("the example of %s has the unknown field %s", k.name, key)
			}
		}
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
