package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab"
)

// onInstance makes a command take the name of an instance, and pass on the arguments after it.
func onInstance(cmd *cobra.Command) {
	cmd.Flags().SetInterspersed(false)
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if len(args) == 0 {
			return errors.New(cmd.Name() + " needs the name or id of an instance; k8s-lab status lists them")
		}
		return nil
	}
}

// command returns the arguments after the instance's name.
func command(args []string) []string {
	rest := args[1:]
	if len(rest) > 0 && rest[0] == "--" {
		return rest[1:]
	}
	return rest
}

func (c *cli) exec() *cobra.Command {
	cmd := &cobra.Command{
		Use: "exec INSTANCE [-- COMMAND...]", Short: "Run a command, or a shell, as root on an instance, without SSH",
		Long:    "exec runs a command, or a login shell, as root on a running instance. It needs no network, sshd or key there.",
		Example: example("sudo k8s-lab exec worker-0", "sudo k8s-lab exec worker-0 -- journalctl -u kubelet -n 50"),
		RunE: c.with(func(ctx context.Context, l *lab.Lab, args []string) error {
			rest := command(args)
			if len(rest) == 0 {
				rest = []string{"bash", "--login"}
			}
			cmd, err := l.Exec(ctx, args[0], rest...)
			if err != nil {
				return err
			}
			return c.attached(cmd)
		}),
	}
	onInstance(cmd)
	return cmd
}

func (c *cli) ssh() *cobra.Command {
	var key, user string
	cmd := &cobra.Command{
		Use: "ssh [-i KEY] INSTANCE [-- COMMAND...]", Short: "Log in to an instance with ssh(1)",
		Long: `ssh runs ssh(1) to the public address of a running instance. The lab knows the host
key of the machine, so that no unknown key is ever accepted. Your configuration of
ssh is not read.`,
		Example: example("sudo k8s-lab ssh -i key.pem worker-0", "sudo k8s-lab ssh worker-0 -- sudo crictl ps"),
		RunE: c.with(func(ctx context.Context, l *lab.Lab, args []string) error {
			hosts, err := os.CreateTemp("", "k8s-lab-known-hosts-*")
			if err != nil {
				return fmt.Errorf("file for the host key: %w", err)
			}
			defer os.Remove(hosts.Name()) //nolint:errcheck // public keys only
			address, err := l.KnownHost(ctx, args[0], hosts)
			if err = errors.Join(err, hosts.Close()); err != nil {
				return err
			}
			options := []string{"-F", "none", "-o", "UserKnownHostsFile=" + hosts.Name(), "-o", "GlobalKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=yes", "-o", "PasswordAuthentication=no"}
			if key != "" {
				options = append(options, "-o", "IdentitiesOnly=yes", "-i", key)
			}
			return c.attached(exec.CommandContext(ctx, "ssh", append(append(options, user+"@"+address.String()), command(args)...)...))
		}),
	}
	onInstance(cmd)
	cmd.Flags().StringVarP(&key, "identity", "i", "", "private key; without it ssh's own choice, such as an agent's keys")
	cmd.Flags().StringVar(&user, "user", "admin", "user to log in as")
	return cmd
}

// attached runs a command on the terminal.
func (c *cli) attached(cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, c.stdout, c.stderr
	return cmd.Run()
}

func (c *cli) console() *cobra.Command {
	var follow bool
	cmd := &cobra.Command{
		Use: "console INSTANCE", Short: "Show what an instance's console printed, over all its boots",
		Long: `console shows what the machine of an instance, running or stopped, printed at its
console: the boot, cloud-init, and why systemd-nspawn ended. EC2's GetConsoleOutput
returns the end of it.`,
		Example: example("sudo k8s-lab console worker-0", "sudo k8s-lab console --follow worker-0"),
		RunE: c.with(func(ctx context.Context, l *lab.Lab, args []string) error {
			return l.Console(ctx, args[0], c.stdout, follow)
		}),
	}
	onInstance(cmd)
	cmd.Flags().SetInterspersed(true)
	cmd.Args = cobra.MatchAll(cmd.Args, func(_ *cobra.Command, args []string) error {
		if len(args) > 1 {
			return errors.New("console takes one instance")
		}
		return nil
	})
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "wait for more")
	return cmd
}

func (c *cli) logs() *cobra.Command {
	var follow, calls bool
	cmd := &cobra.Command{
		Use: "logs", Short: "Show the daemon's log, or the calls of the AWS APIs", Args: noArguments,
		Long: `logs shows the daemon's log: what was refused, what a machine did unasked, why the
daemon died. With --calls it shows the calls of the AWS APIs, one JSON object a
line: who asked for what, and how it ended. Neither has secrets. Both are rotated
at 10 MiB, and two older parts are kept.`,
		Example: example("sudo k8s-lab logs --follow", `sudo k8s-lab logs --calls | jq -r 'select(.code) | "\(.action) \(.code)"'`),
		RunE: c.with(func(ctx context.Context, l *lab.Lab, _ []string) error {
			return l.Logs(ctx, c.stdout, calls, follow)
		}),
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "wait for more")
	cmd.Flags().BoolVar(&calls, "calls", false, "the calls of the AWS APIs")
	return cmd
}
