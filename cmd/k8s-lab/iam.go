package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab"
)

// iam manages IAM's users and roles.
func (c *cli) iam() *cobra.Command {
	cmd := &cobra.Command{
		Use: "iam", Short: "Manage users and roles with identity policies", Args: noArguments,
		Long: `iam manages the users and roles of the lab's account. The key that k8s-lab env
prints is the account's owner, who may do everything. A user or a role may do what
its identity policies allow.`,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(c.iamUser(), c.iamRole(), c.iamList(), c.iamDelete())
	return cmd
}

// named wants one name.
func named(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s needs one name", cmd.CommandPath())
	}
	return nil
}

func (c *cli) iamUser() *cobra.Command {
	var policies []string
	cmd := &cobra.Command{
		Use: "user NAME", Short: "Make a user, or give it other policies; print its key as shell exports", Args: named,
		Example: example(`eval "$(sudo k8s-lab iam user terraform --policy examples/iam/everyday.json)"`),
		RunE: c.with(func(ctx context.Context, l *lab.Lab, args []string) error {
			documents, err := contents(policies)
			if err != nil {
				return err
			}
			u, err := l.PutUser(ctx, args[0], documents)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.stdout, "export AWS_ACCESS_KEY_ID=%s\nexport AWS_SECRET_ACCESS_KEY=%s\n", shellQuote(u.AccessKeyID), shellQuote(u.SecretAccessKey))
			return err
		}),
	}
	policyFlag(cmd, &policies)
	return cmd
}

func (c *cli) iamRole() *cobra.Command {
	var policies []string
	var trust string
	cmd := &cobra.Command{
		Use: "role NAME", Short: "Make a role, or give it other policies; print its ARN", Args: named,
		Example: example("sudo k8s-lab iam role deploy --policy everyday.json --trust trust.json"),
		RunE: c.with(func(ctx context.Context, l *lab.Lab, args []string) error {
			documents, err := contents(policies)
			if err != nil {
				return err
			}
			var trusted string
			if trust != "" {
				content, err := os.ReadFile(trust)
				if err != nil {
					return err
				}
				trusted = string(content)
			}
			r, err := l.PutRole(ctx, args[0], documents, trusted)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.stdout, r.ARN)
			return err
		}),
	}
	policyFlag(cmd, &policies)
	cmd.Flags().StringVar(&trust, "trust", "", "file with the trust policy; without one the role trusts the account")
	return cmd
}

func (c *cli) iamList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List users and roles", Args: noArguments,
		RunE: c.with(func(ctx context.Context, l *lab.Lab, _ []string) error {
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
		}),
	}
}

func (c *cli) iamDelete() *cobra.Command {
	cmd := &cobra.Command{Use: "delete", Short: "Delete a user or a role", Args: noArguments}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	for kind, remove := range map[string]func(*lab.Lab, context.Context, string) error{"user": (*lab.Lab).DeleteUser, "role": (*lab.Lab).DeleteRole} {
		cmd.AddCommand(&cobra.Command{
			Use: kind + " NAME", Short: "Delete a " + kind, Args: named,
			RunE: c.with(func(ctx context.Context, l *lab.Lab, args []string) error { return remove(l, ctx, args[0]) }),
		})
	}
	return cmd
}

func policyFlag(cmd *cobra.Command, names *[]string) {
	cmd.Flags().StringArrayVar(names, "policy", nil, "file with an identity policy; may be given several times")
}

// contents reads files.
func contents(names []string) ([]string, error) {
	var out []string
	for _, name := range names {
		content, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		out = append(out, string(content))
	}
	return out, nil
}
