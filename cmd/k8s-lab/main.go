// Command k8s-lab runs a local EC2 with real machines on one Linux host.
package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

const about = `k8s-lab runs a local EC2, with real machines, on this host.

The lab lives in --state-dir, $K8S_LAB_STATE_DIR, or /var/lib/k8s-lab/default.
What all labs share is cached in $K8S_LAB_CACHE (~/.cache/k8s-lab), from which
up removes the images of other versions that no lab uses. The machines are made
of Debian 12 and 13 from $K8S_LAB_DEBIAN_MIRROR (http://deb.debian.org/debian),
whose security archive is expected at the same URL with -security appended.

Root in a machine is root on this host: run in it what you would run here.`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "k8s-lab: %v\n", err)
		os.Exit(1)
	}
}

// cli holds what the commands share.
type cli struct {
	stateDir       string
	stdout, stderr io.Writer
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := &cli{stdout: stdout, stderr: stderr}
	root := c.root() //nolint:contextcheck // its commands get ctx from ExecuteContext
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return root.ExecuteContext(ctx)
}

// root returns the command with all its subcommands.
func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use: "k8s-lab", Short: "A local EC2 with real machines on this host", Long: about,
		SilenceUsage: true, SilenceErrors: true, Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.PersistentFlags().StringVar(&c.stateDir, "state-dir", cmp.Or(os.Getenv(lab.StateDirEnv), lab.DefaultStateDir), "directory of the lab")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(
		c.up(), c.down(), c.status(), c.env(), c.artifacts(),
		c.exec(), c.ssh(), c.console(), c.logs(),
		c.iam(), c.bucket(), c.publish(), c.fault(), c.daemon(), c.serve(),
	)
	return root
}

// noArguments refuses arguments.
func noArguments(cmd *cobra.Command, args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case cmd.HasSubCommands():
		return fmt.Errorf("there is no command %q; %s --help lists them", strings.TrimPrefix(cmd.CommandPath()+" "+args[0], "k8s-lab "), cmd.CommandPath())
	}
	return fmt.Errorf("%s takes no argument %q", strings.TrimPrefix(cmd.CommandPath(), "k8s-lab "), args[0])
}

// lab opens the lab that the flags name. Progress goes to standard error.
func (c *cli) lab() (*lab.Lab, error) {
	return lab.New(c.stateDir, "", progress.New(c.stderr))
}

// with returns the run function of a command that works on the lab.
func (c *cli) with(do func(ctx context.Context, l *lab.Lab, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		l, err := c.lab()
		if err != nil {
			return err
		}
		return do(cmd.Context(), l, args)
	}
}

// example indents a command's examples.
func example(lines ...string) string { return "  " + strings.Join(lines, "\n  ") }
