package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/release"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

func (c *cli) up() *cobra.Command {
	var opts lab.UpOptions
	cmd := &cobra.Command{
		Use: "up", Short: "Start the lab, or leave it as it is if it runs", Args: noArguments,
		Long: `up starts the lab, or leaves it as it is if it runs. It first builds or downloads
what is missing: machine images, and unless the lab is bare also Kubernetes,
etcd, containerd and container images, which takes about a quarter of an hour
the first time on a machine with two cores.`,
		Example: example("sudo k8s-lab up", "sudo k8s-lab up --kubernetes v1.36.4,v1.37.1", "sudo k8s-lab up --bare --quota vcpus=16 --region eu-central-1", "sudo k8s-lab --state-dir /var/lib/k8s-lab/vms up --machines vm --quota vcpus=32"),
	}
	releaseFlags(cmd, &opts.Versions)
	cmd.Flags().StringToIntVar(&opts.Quotas, "quota", nil, "raise a quota, as AWS's support does: "+strings.Join(ec2.QuotaNames(), ", ")+" (in a new lab those of a new account of AWS, such as five vCPUs)")
	cmd.Flags().StringVar(&opts.Region, "region", "", "the lab's region ("+lab.DefaultRegion+" in a new lab)")
	cmd.Flags().BoolVar(&opts.Bare, "bare", false, "EC2 only: no artifacts and images for Kubernetes are built or served")
	cmd.Flags().StringSliceVar(&opts.With, "with", nil, "also build and serve the images of cilium ("+release.CiliumVersion+") or traefik ("+release.TraefikVersion+"), which takes some minutes and 1 GB the first time")
	cmd.Flags().StringSliceVar(&opts.Images, "image", nil, "ids of images in the cache that the lab offers in addition to Debian's; make artifacts makes one for tests")
	cmd.MarkFlagsMutuallyExclusive("bare", "with")
	var machines string
	cmd.Flags().StringVar(&machines, "machines", "", "what the machines of a new lab are: container, or vm for virtual machines of QEMU (container in a new lab)")
	cmd.RunE = c.with(func(ctx context.Context, l *lab.Lab, _ []string) error {
		var err error
		if opts.Machines, err = machine.ParseKind(machines); err != nil {
			return fmt.Errorf("--machines: %w", err)
		}
		if opts.Daemon, err = c.again("daemon"); err != nil {
			return err
		}
		began := time.Now()
		if err := l.Up(ctx, opts); err != nil {
			return err
		}
		e, err := l.Endpoints()
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(c.stdout, "The local EC2 in %s is up (%s).\n", l.Dir(), time.Since(began).Round(10*time.Millisecond))
		return e.Write(c.stdout)
	})
	return cmd
}

// again returns the command line of this program with another command for the same lab.
func (c *cli) again(command string) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	dir, err := filepath.Abs(c.stateDir)
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	return []string{self, "--state-dir", dir, command}, nil
}

// releaseFlags adds the flags that name releases.
func releaseFlags(cmd *cobra.Command, v *release.Versions) {
	cmd.Flags().StringSliceVar(&v.Kubernetes, "kubernetes", nil, "releases of Kubernetes that the mirror must hold, such as v1.36.4,v1.37.1")
	cmd.Flags().StringSliceVar(&v.Etcd, "etcd", nil, "releases of etcd that the mirror must hold")
	cmd.Flags().StringSliceVar(&v.Containerd, "containerd", nil, "releases of containerd that the mirror must hold")
}

func (c *cli) down() *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "Stop the lab and remove everything in it", Args: noArguments,
		Long: `down ends the daemon and all machines, removes the network and the lab's files, and
puts back the host's settings if no other lab needs them. It also removes what a
crashed lab left. The cache stays.`,
		RunE: c.with(func(ctx context.Context, l *lab.Lab, _ []string) error {
			if err := l.Down(ctx); err != nil {
				return err
			}
			_, err := fmt.Fprintln(c.stdout, "The local EC2 is down; nothing is left of it.")
			return err
		}),
	}
}

func (c *cli) status() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "status", Short: "Show what is in the lab", Args: noArguments,
		Long:    "status shows the lab's addresses and resources, the faults in force, and what labs changed on this host.",
		Example: example("k8s-lab status", "k8s-lab status --json | jq -r '.account.instances[].private_ip'"),
		RunE: c.with(func(ctx context.Context, l *lab.Lab, _ []string) error {
			s, err := l.Status(ctx)
			if err != nil {
				return err
			}
			if asJSON {
				return printJSON(c.stdout, s)
			}
			return s.Write(c.stdout, time.Now())
		}),
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "as JSON, for programs")
	return cmd
}

func (c *cli) bucket() *cobra.Command {
	return &cobra.Command{
		Use: "bucket NAME", Short: "Create an S3 bucket, or leave it as it is if it exists", Args: cobra.ExactArgs(1),
		Long: `bucket creates an S3 bucket in the lab's account. The first time on a host it builds
the program that serves S3, which takes some minutes. Any S3 client creates and
deletes buckets and objects, too: k8s-lab env has the endpoint.`,
		Example: example("sudo k8s-lab bucket backups"),
		RunE: c.with(func(ctx context.Context, l *lab.Lab, args []string) error {
			if err := l.CreateBucket(ctx, args[0]); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.stdout, "There is a bucket %s.\n", args[0])
			return err
		}),
	}
}

func (c *cli) env() *cobra.Command {
	var tfvars bool
	cmd := &cobra.Command{
		Use: "env", Short: "Print shell exports that point AWS clients and the provider to the lab", Args: noArguments,
		Example: example(`eval "$(sudo k8s-lab env)"`, "sudo k8s-lab env --tfvars > lab.auto.tfvars.json"),
		RunE: c.with(func(_ context.Context, l *lab.Lab, _ []string) error {
			if tfvars {
				vars, err := l.Vars()
				if err != nil {
					return err
				}
				return printJSON(c.stdout, vars)
			}
			vars, err := l.Env()
			if err != nil {
				return err
			}
			for _, v := range vars {
				if _, err := fmt.Fprintf(c.stdout, "export %s=%s\n", v[0], shellQuote(v[1])); err != nil {
					return err
				}
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&tfvars, "tfvars", false, "print Terraform variables instead, as JSON")
	return cmd
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// shellQuote quotes a word for a shell, if it needs quotes.
func shellQuote(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@%+=,", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func (c *cli) artifacts() *cobra.Command {
	var versions release.Versions
	var tool string
	cmd := &cobra.Command{
		Use: "artifacts", Short: "Only build or download what labs need, and start nothing", Args: noArguments,
		Long:    "artifacts builds or downloads machine images, artifacts and container images into the cache.",
		Example: example("sudo k8s-lab artifacts --kubernetes v1.37.1", "k8s-lab artifacts --tool tofu"),
	}
	releaseFlags(cmd, &versions)
	cmd.Flags().StringVar(&tool, "tool", "", "build only this tool (tofu, or cilium for its images and Helm) and print its path")
	cmd.RunE = c.with(func(ctx context.Context, l *lab.Lab, _ []string) error {
		switch tool {
		case "":
			return l.Provide(ctx, versions)
		case "cilium":
			made, err := release.EnsureCilium(ctx, release.Options{Progress: progress.New(c.stderr)})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(c.stdout, "images %s\nchart  %s\nhelm   %s\n", made.Images, made.Chart, made.Helm)
			return err
		case "tofu":
			dir, err := release.EnsureTools(ctx, release.Options{Progress: progress.New(c.stderr)})
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(c.stdout, filepath.Join(dir, "tofu"))
			return err
		}
		return fmt.Errorf("there is no tool %q; there are tofu and cilium", tool)
	})
	return cmd
}

// daemon keeps the lab's daemon running. It is started by up.
func (c *cli) daemon() *cobra.Command {
	return &cobra.Command{
		Use: "daemon", Hidden: true, Args: noArguments,
		RunE: c.with(func(ctx context.Context, l *lab.Lab, _ []string) error {
			serve, err := c.again("serve")
			if err != nil {
				return err
			}
			return l.Keep(ctx, serve)
		}),
	}
}

// serve is the lab's daemon. It is started by daemon.
func (c *cli) serve() *cobra.Command {
	return &cobra.Command{
		Use: "serve", Hidden: true, Args: noArguments,
		RunE: c.with(func(ctx context.Context, l *lab.Lab, _ []string) error {
			ctx, announce := lab.Attend(ctx)
			return l.Serve(ctx, slog.New(slog.NewTextHandler(c.stderr, nil)), announce)
		}),
	}
}
