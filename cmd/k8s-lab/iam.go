package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab"
)

// iam manages IAM's users, roles and instance profiles.
func (c *cli) iam() *cobra.Command {
	cmd := &cobra.Command{
		Use: "iam", Short: "Manage users and roles with identity policies, and instance profiles", Args: noArguments,
		Long: `iam manages the users, roles and instance profiles of the lab's account. The key that k8s-lab env
prints is the account's owner, who may do everything. A user or a role may do what
its identity policies allow. An instance with an instance profile gets the
credentials of the profile's role from its metadata service.`,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(c.iamUser(), c.iamRole(), c.iamProfile(), c.iamList(), c.iamDelete())
	return cmd
}

// named refuses arguments other than one name.
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
	cmd.Flags().StringVar(&trust, "trust", "", "file with the trust policy; without one the role trusts the account and EC2")
	return cmd
}

func (c *cli) iamProfile() *cobra.Command {
	var role string
	cmd := &cobra.Command{
		Use: "instance-profile NAME", Short: "Make an instance profile, or give it another role; print its ARN", Args: named,
		Example: example("sudo k8s-lab iam instance-profile node --role deploy"),
		RunE: c.with(func(ctx context.Context, l *lab.Lab, args []string) error {
			p, err := l.PutInstanceProfile(ctx, args[0], role)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.stdout, p.ARN)
			return err
		}),
	}
	cmd.Flags().StringVar(&role, "role", "", "name of the role in the profile")
	_ = cmd.MarkFlagRequired("role") // fails only if there is no such flag
	return cmd
}

func (c *cli) iamList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List users, roles and instance profiles", Args: noArguments,
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
			for _, p := range all.Profiles {
				_, _ = fmt.Fprintf(c.stdout, "instance profile %s, role: %s\n", p.ARN, p.Role)
			}
			return nil
		}),
	}
}

func (c *cli) iamDelete() *cobra.Command {
	cmd := &cobra.Command{Use: "delete", Short: "Delete a user, a role or an instance profile", Args: noArguments}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	for kind, remove := range map[string]func(*lab.Lab, context.Context, string) error{
		"user": (*lab.Lab).DeleteUser, "role": (*lab.Lab).DeleteRole, "instance-profile": (*lab.Lab).DeleteInstanceProfile,
	} {
		cmd.AddCommand(&cobra.Command{
			Use: kind + " NAME", Short: "Delete one", Args: named,
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
