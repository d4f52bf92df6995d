// Command awssmoke tries the project in a real AWS account: it applies examples/ha-cluster under a
// name of its own, uses the cluster, destroys it, looks for what is left, and writes a report that
// names neither the account nor any address. It asks before it makes anything. Then it does it again
// by a role that has exactly the policies of examples/iam, and says what they do not allow.
//
// It runs other programs and reads AWS. What it makes, it makes with Terraform, but for that role. One file has one
// job; trial.go has the order.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// options are the command's flags.
type options struct {
	yes                 bool
	adminCIDR           string // may reach the cluster; empty means this computer's public address
	varFile             string // of the example, JSON
	image, egress       string
	kubectl, root, into string
	once                bool // with the caller's rights alone
	ebs                 bool // also the EBS CSI driver
}

func main() {
	// The first signal ends the trial and destroys what it made. The second ends that too.
	trying, end := context.WithCancelCause(context.Background())
	destroying, giveUp := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go interrupt(signals, os.Stderr, end, giveUp)
	if err := run(trying, destroying, os.Args[1:], os.Stdin, os.Stdout); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "aws-smoke:", err)
		os.Exit(1)
	}
}

var errInterrupted = errors.New("interrupted")

// interrupt ends the trial at the first signal, and the destroying at the second.
func interrupt(signals <-chan os.Signal, out io.Writer, end, giveUp context.CancelCauseFunc) {
	<-signals
	_, _ = fmt.Fprintln(out, "\nInterrupted: what was made is destroyed now. A second Ctrl-C leaves it, and it costs money.")
	end(errInterrupted)
	<-signals
	giveUp(errInterrupted)
}

func run(trying, destroying context.Context, args []string, in io.Reader, out io.Writer) error {
	o, err := parse(args, out)
	if err != nil {
		return err
	}
	t, err := newTrial(trying, o, in, out)
	if err != nil {
		return err
	}
	defer t.close()
	err = t.run(trying, destroying)
	switch {
	case o.once || errors.Is(err, errDeclined):
		return err
	case err != nil:
		_, _ = fmt.Fprintln(out, "\nThe trial by a role is left out, since this one has failed.")
		return err
	case trying.Err() != nil:
		return context.Cause(trying)
	}
	return t.again(trying, destroying)
}

func parse(args []string, out io.Writer) (o options, err error) {
	f := flag.NewFlagSet("aws-smoke", flag.ContinueOnError)
	f.SetOutput(out)
	f.BoolVar(&o.yes, "yes", false, "do not ask before the cluster is made")
	f.BoolVar(&o.once, "once", false, "do not repeat the trial under exactly the documented policies, for which it makes a role")
	f.BoolVar(&o.ebs, "ebs", false, "also try examples/ebs-csi: makes a bucket that everybody may read and a role, and needs helm")
	f.StringVar(&o.adminCIDR, "admin-cidr", "", "network that may reach SSH and the API server; this computer's public address when empty")
	f.StringVar(&o.varFile, "var-file", "", "JSON file with variables of examples/ha-cluster")
	f.StringVar(&o.image, "image", "public.ecr.aws/docker/library/busybox:1.37", "image of the pods that check the cluster: a busybox")
	f.StringVar(&o.egress, "egress", "http://checkip.amazonaws.com/", "URL on the internet that pods must reach")
	f.StringVar(&o.kubectl, "kubectl", "kubectl", "kubectl")
	f.StringVar(&o.root, "root", ".", "directory of the repository")
	f.StringVar(&o.into, "into", "", "directory for the state, the logs and the report; .aws-smoke in the repository when empty")
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("%q is no flag; -help lists them", f.Arg(0))
	}
	if o.root, err = filepath.Abs(o.root); err != nil {
		return o, err
	}
	if _, err := os.Stat(filepath.Join(o.root, "examples", "ha-cluster")); err != nil {
		return o, fmt.Errorf("run it from the top of the repository: %w", err)
	}
	if o.into == "" {
		o.into = filepath.Join(o.root, ".aws-smoke")
	}
	return o, nil
}

// timeLimit is how long destroying may take.
const timeLimit = 40 * time.Minute
