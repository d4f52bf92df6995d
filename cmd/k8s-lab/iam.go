package main

import (
	"context"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
)

// iam manages what IAM has.
func (c *cli) iam() *cobra.Command {
	cmd := &cobra.Command{
		Use: "iam", Short: "Manage users, roles, policies, instance profiles and OpenID Connect providers", Args: noArguments,
		Long: `iam manages the users and roles of the lab's account, and what belongs to them. The key that k8s-lab env
prints is the account's owner, who may do everything. A user or a role may do what
its policies allow. A permissions boundary and service control policies can only take
away. An instance with an instance profile gets the
credentials of the profile's role from its metadata service.`,
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	cmd.AddCommand(c.iamUser(), c.iamRole(), c.iamPolicy(), c.iamControls(), c.iamProfile(), c.iamIssuer(), c.iamList(), c.iamDelete())
	return cmd
}

// named refuses arguments other than one name.
func named(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s needs one name", cmd.CommandPath())
	}
	return nil
}

// prints runs a command that makes something of one name, and prints its ARN.
func (c *cli) prints(put func(ctx context.Context, l *lab.Lab, name string) (string, error)) func(*cobra.Command, []string) error {
	return c.with(func(ctx context.Context, l *lab.Lab, args []string) error {
		arn, err := put(ctx, l, args[0])
		if err != nil {
			return err
		}
		_, err = fmt.Fprintln(c.stdout, arn)
		return err
	})
}

func (c *cli) iamUser() *cobra.Command {
	var flags entityFlags
	cmd := &cobra.Command{
		Use: "user NAME", Short: "Make a user, or give it other policies; print its key as shell exports", Args: named,
		Long: `user makes a user, or changes one that exists. What is not given is taken away:
policies, also those that IAM's API gave or attached, tags and the permissions
boundary. The path and the access keys stay. A user without an access key gets one.`,
		Example: example(`eval "$(sudo k8s-lab iam user terraform --policy examples/iam/everyday.json)"`),
		RunE: c.with(func(ctx context.Context, l *lab.Lab, args []string) error {
			e, err := flags.entity()
			if err != nil {
				return err
			}
			u, err := l.PutUser(ctx, args[0], e)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.stdout, "export AWS_ACCESS_KEY_ID=%s\nexport AWS_SECRET_ACCESS_KEY=%s\n", shellQuote(u.AccessKeyID), shellQuote(u.SecretAccessKey))
			return err
		}),
	}
	flags.add(cmd)
	return cmd
}

func (c *cli) iamRole() *cobra.Command {
	var flags entityFlags
	var trust string
	cmd := &cobra.Command{
		Use: "role NAME", Short: "Make a role, or give it other policies; print its ARN", Args: named,
		Long: `role makes a role, or changes one that exists. What is not given is taken away:
policies, also those that IAM's API gave or attached, tags and the permissions
boundary. Without --trust the role trusts the account and EC2 again. The path stays.`,
		Example: example("sudo k8s-lab iam role deploy --policy everyday.json --trust trust.json"),
		RunE: c.prints(func(ctx context.Context, l *lab.Lab, name string) (string, error) {
			e, err := flags.entity()
			if err != nil {
				return "", err
			}
			var trusted string
			if trust != "" {
				content, err := os.ReadFile(trust)
				if err != nil {
					return "", err
				}
				trusted = string(content)
			}
			r, err := l.PutRole(ctx, name, e, trusted)
			return r.ARN, err
		}),
	}
	flags.add(cmd)
	cmd.Flags().StringVar(&trust, "trust", "", "file with the trust policy; without one the role trusts the account and EC2")
	return cmd
}

func (c *cli) iamProfile() *cobra.Command {
	var path, role string
	cmd := &cobra.Command{
		Use: "instance-profile NAME", Short: "Make an instance profile, or give it another role; print its ARN", Args: named,
		Example: example("sudo k8s-lab iam instance-profile node --role deploy"),
		RunE: c.prints(func(ctx context.Context, l *lab.Lab, name string) (string, error) {
			p, err := l.PutInstanceProfile(ctx, name, path, role)
			return p.ARN, err
		}),
	}
	cmd.Flags().StringVar(&path, "path", "/", "path of a new profile, such as /k8s/demo/")
	cmd.Flags().StringVar(&role, "role", "", "name of the role in the profile")
	_ = cmd.MarkFlagRequired("role") // fails only if there is no such flag
	return cmd
}

func (c *cli) iamPolicy() *cobra.Command {
	var path, document string
	cmd := &cobra.Command{
		Use: "policy NAME", Short: "Make a managed policy, or give it another document; print its ARN", Args: named,
		Example: example("sudo k8s-lab iam policy boundary --document examples/iam/boundary.json"),
		RunE: c.prints(func(ctx context.Context, l *lab.Lab, name string) (string, error) {
			content, err := os.ReadFile(document)
			if err != nil {
				return "", err
			}
			m, err := l.PutPolicy(ctx, name, path, string(content))
			return m.ARN, err
		}),
	}
	cmd.Flags().StringVar(&path, "path", "/", "path of the policy")
	cmd.Flags().StringVar(&document, "document", "", "file with the policy")
	_ = cmd.MarkFlagRequired("document") // fails only if there is no such flag
	return cmd
}

func (c *cli) iamControls() *cobra.Command {
	var policies []string
	cmd := &cobra.Command{
		Use: "service-control", Short: "Give the account service control policies, or, without --policy, none", Args: noArguments,
		Example: example("sudo k8s-lab iam service-control --policy regions.json"),
		RunE: c.with(func(ctx context.Context, l *lab.Lab, _ []string) error {
			documents, err := contents(policies)
			if err != nil {
				return err
			}
			return l.PutControls(ctx, documents)
		}),
	}
	cmd.Flags().StringArrayVar(&policies, "policy", nil, "file with a policy; may be given several times")
	return cmd
}

func (c *cli) iamIssuer() *cobra.Command {
	var i iam.Issuer
	var keys string
	cmd := &cobra.Command{
		Use: "oidc-provider URL", Short: "Make an OpenID Connect provider, or change it; print its ARN", Args: named,
		Long: `oidc-provider makes an OpenID Connect provider, whose tokens STS believes and roles can
trust. STS asks the provider for its keys, as on AWS. --keys gives them for a provider that
this computer cannot reach.`,
		Example: example("sudo k8s-lab iam oidc-provider https://app.terraform.io --client-id aws.workload.identity --keys jwks.json"),
		RunE: c.prints(func(ctx context.Context, l *lab.Lab, name string) (string, error) {
			i.URL = name
			if keys != "" {
				var err error
				if i.Keys, err = os.ReadFile(keys); err != nil {
					return "", err
				}
			}
			made, err := l.PutIssuer(ctx, i)
			return made.ARN, err
		}),
	}
	cmd.Flags().StringArrayVar(&i.ClientIDs, "client-id", nil, "for whom its tokens are: their audience; may be given several times")
	cmd.Flags().StringArrayVar(&i.Thumbprints, "thumbprint", nil, "SHA-1 of a certificate that it shows, in hexadecimal; may be given several times")
	cmd.Flags().StringVar(&keys, "keys", "", "file with its keys, a JSON Web Key Set")
	return cmd
}

func (c *cli) iamList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List what IAM has", Args: noArguments,
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
			for _, m := range all.Policies {
				_, _ = fmt.Fprintf(c.stdout, "policy %s\n", m.ARN)
			}
			for _, i := range all.Issuers {
				_, _ = fmt.Fprintf(c.stdout, "OpenID Connect provider %s, client ids: %q\n", i.ARN, i.ClientIDs)
			}
			return nil
		}),
	}
}

func (c *cli) iamDelete() *cobra.Command {
	cmd := &cobra.Command{Use: "delete", Short: "Delete a user, a role or an instance profile by its name, or a managed policy or OpenID Connect provider by its ARN", Args: noArguments}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	for kind, remove := range map[string]func(*lab.Lab, context.Context, string) error{
		"user": (*lab.Lab).DeleteUser, "role": (*lab.Lab).DeleteRole, "instance-profile": (*lab.Lab).DeleteInstanceProfile,
		"policy": (*lab.Lab).DeletePolicy, "oidc-provider": (*lab.Lab).DeleteIssuer,
	} {
		cmd.AddCommand(&cobra.Command{
			Use: kind + " NAME", Short: "Delete one", Args: named,
			RunE: c.with(func(ctx context.Context, l *lab.Lab, args []string) error { return remove(l, ctx, args[0]) }),
		})
	}
	return cmd
}

// entityFlags are the flags that users and roles have in common.
type entityFlags struct {
	iam.Entity
	policies []string
}

func (f *entityFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringArrayVar(&f.policies, "policy", nil, "file with an identity policy; may be given several times")
	cmd.Flags().StringVar(&f.Path, "path", "/", "path of a new one, such as /k8s/demo/")
	cmd.Flags().StringToStringVar(&f.Tags, "tag", nil, "tags, such as k8s-cluster=demo")
	cmd.Flags().StringVar(&f.Boundary, "boundary", "", "ARN of the managed policy that is the permissions boundary")
}

func (f *entityFlags) entity() (iam.Entity, error) {
	var err error
	f.Policies, err = contents(f.policies)
	return f.Entity, err
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
