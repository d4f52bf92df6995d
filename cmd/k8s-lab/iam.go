package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
)

// identities manages IAM's users and roles.
func identities(ctx context.Context, c *cli, args []string) error {
	kind, name, rest := "", "", args
	if len(rest) > 0 {
		kind, rest = rest[0], rest[1:]
	}
	of := kind // what is to be deleted
	if kind == "delete" && len(rest) > 0 {
		of, rest = rest[0], rest[1:]
	}
	if kind != "list" && len(rest) > 0 {
		name, rest = rest[0], rest[1:]
	}
	f := c.flags("iam")
	var policies, trust files
	if kind == "user" || kind == "role" {
		f.Var(&policies, "policy", "file with an identity policy; may be given several times")
	}
	if kind == "role" {
		f.Var(&trust, "trust", "file with the trust policy; without one the role trusts the account")
	}
	if err := parse(f, rest); err != nil {
		return err
	}
	if len(trust) > 1 {
		return errors.New("a role has one trust policy")
	}
	l, err := c.lab()
	if err != nil {
		return err
	}
	switch {
	case kind == "list":
		all, err := l.Identities(ctx)
		if err != nil {
			return err
		}
		for _, u := range all.Users {
			_, _ = fmt.Fprintf(c.stdout, "user %s %s, policies: %d\n", u.ARN, u.AccessKeyID, len(u.Policies))
		}
		for _, r := range all.Roles {
			_, _ = fmt.Fprintf(c.stdout, "role %s, policies: %d\n", r.ARN, len(r.Policies))
		}
		return nil
	case kind == "user" && name != "":
		u, err := l.PutUser(ctx, name, policies)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.stdout, "export AWS_ACCESS_KEY_ID=%s\nexport AWS_SECRET_ACCESS_KEY=%s\n", shellQuote(u.AccessKeyID), shellQuote(u.SecretAccessKey))
		return err
	case kind == "delete" && of == "user" && name != "":
		return l.DeleteUser(ctx, name)
	case kind == "delete" && of == "role" && name != "":
		return l.DeleteRole(ctx, name)
	case kind == "role" && name != "":
		r, err := l.PutRole(ctx, name, policies, strings.Join(trust, ""))
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(c.stdout, r.ARN)
		return err
	}
	return errors.New("iam needs list, user NAME, role NAME or delete (user|role) NAME; k8s-lab help shows how")
}

// files are the contents of files named by a flag.
type files []string

var _ flag.Value = (*files)(nil)

// String implements flag.Value.
func (f *files) String() string { return "" }

// Set implements flag.Value.
func (f *files) Set(name string) error {
	content, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	*f = append(*f, string(content))
	return nil
}
