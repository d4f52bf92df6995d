// Command k8s-lab runs a local EC2 with real machines on one Linux host.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

const usage = `k8s-lab runs a local EC2, with real machines, on this host.

Usage: k8s-lab [--state-dir DIR] COMMAND [flags]

  up         start the lab, or leave it as it is if it runs
             --kubernetes v1.36.4,v1.37.1   releases the mirror must hold; the same
             --etcd, --containerd           of etcd and of containerd
             --vcpus 32                     quota for the vCPUs of running instances
  down       stop the lab and remove everything in it
  status     show what is in the lab
  env        print shell exports that point AWS clients and the provider to the lab
             --tfvars                       Terraform variables instead, as JSON
  artifacts  only build or download machine images, artifacts and container images
             --kubernetes ... as above      --tool tofu (prints the program's path)
  exec       run a command, or a shell, as root on an instance, without SSH:
             k8s-lab exec worker-0 [-- command args...]
  iam        users and roles with identity policies; a user's keys are printed as
             shell exports:
             k8s-lab iam user terraform --policy everyday.json [--policy ...]
             k8s-lab iam role deploy --policy everyday.json [--trust trust.json]
             k8s-lab iam list
             k8s-lab iam delete (user|role) NAME
  fault      inject faults: k8s-lab fault (list | clear | KIND key=value...)
             throttle    action=DescribeInstances every=3 | fraction=0.2
             eventual    milliseconds=500 | calls=3
             capacity    count=2 [action=StartInstances]
             slow-start  seconds=20
             short-sessions seconds=30
             forget      seconds=5
             fail        action=CreateVpc code=VpcLimitExceeded count=1
             kill        instance=i-... outcome=stopped|terminated|impaired
             mirror      path=/dl.k8s.io/... fault=flip|truncate|cut|missing
             boot        fault=apt-lists-locked|dpkg-locked seconds=60
                         fault=cloud-init-hangs [seconds=60]
                         fault=package-half-installed package=socat
                         each of them: name='*-worker-*' count=2
             archive     fault=stall|unavailable count=3 source=203.0.113.9
             seed        seed=42

The lab lives in --state-dir, $K8S_LAB_STATE_DIR, or /var/lib/k8s-lab/default;
what all labs share is cached in $K8S_LAB_CACHE (~/.cache/k8s-lab), from which
up removes the images of other versions that no lab uses. The machines are made
of Debian 12 and 13 from $K8S_LAB_DEBIAN_MIRROR (http://deb.debian.org/debian), whose
security archive is expected at the same URL with -security appended.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "k8s-lab: %v\n", err)
		os.Exit(1)
	}
}

// command runs one subcommand. args are its arguments after the shared flags.
type command func(ctx context.Context, c *cli, args []string) error

var commands = map[string]command{
	"up": up, "down": down, "status": status, "env": env, "artifacts": artifacts, "fault": injectFault, "exec": execute, "daemon": daemon, "serve": serve, "iam": identities,
}

// cli holds what the subcommands share.
type cli struct {
	stateDir       string
	stdout, stderr io.Writer
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	c := &cli{stateDir: defaultStateDir(), stdout: stdout, stderr: stderr}
	flags := c.flags("k8s-lab")
	if err := flags.Parse(args); err != nil {
		return help(err, stdout)
	}
	name := flags.Arg(0)
	if name == "help" || name == "" {
		return help(flag.ErrHelp, stdout)
	}
	f, ok := commands[name]
	if !ok {
		return fmt.Errorf("there is no command %q; k8s-lab help lists them", name)
	}
	return help(f(ctx, c, flags.Args()[1:]), stdout)
}

// help prints the usage if err asks for help.
func help(err error, w io.Writer) error {
	if !errors.Is(err, flag.ErrHelp) {
		return err
	}
	_, err = io.WriteString(w, usage)
	return err
}

// flags returns a set with the flags that may come before or after the command.
func (c *cli) flags(name string) *flag.FlagSet {
	f := flag.NewFlagSet(name, flag.ContinueOnError)
	f.SetOutput(io.Discard) // the error says it
	f.StringVar(&c.stateDir, "state-dir", c.stateDir, "directory of the lab")
	return f
}

// parse reads a command's flags and refuses further arguments.
func parse(f *flag.FlagSet, args []string) error {
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%s takes no argument %q", f.Name(), f.Arg(0))
	}
	return nil
}

func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
}
