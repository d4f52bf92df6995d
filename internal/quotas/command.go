package quotas

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/quotas/need"
)

const usage = `Usage: terraform-provider-k8s quotas [flags] PLAN.json

Says whether the account has room for what a plan makes. PLAN.json is the output
of "terraform show -json PLANFILE"; "-" reads it from the standard input. It adds
up the resources of this provider, and no others. Credentials are found as by
the AWS CLI, and not as by the provider of the plan. The exit status is 1 if a
quota is too small, and if the vCPUs of planned machines could not be compared.

`

// timeLimit is how long the whole command may take.
const timeLimit = 5 * time.Minute

// Command runs `terraform-provider-k8s quotas`. It writes a line for each quota to out and, on request, the explanation
// of the flags to help. The error says that a quota is too small.
func Command(ctx context.Context, args []string, in io.Reader, out, help io.Writer) error {
	flags := flag.NewFlagSet("quotas", flag.ContinueOnError)
	flags.SetOutput(help)
	flags.Usage = func() { _, _ = io.WriteString(help, usage); flags.PrintDefaults() }
	region := flags.String("region", "", "`region` of the account (default: what the plan says of the provider, or the environment)")
	profile := flags.String("profile", "", "`profile` of the shared configuration files")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return nil
		}
		return err
	}
	if flags.NArg() != 1 {
		return errors.New("quotas needs the file of one plan; -help explains it")
	}
	plan, err := read(flags.Arg(0), in)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeLimit, fmt.Errorf("not done within %s", timeLimit))
	defer cancel()
	client, err := infraaws.New(ctx, infraaws.Config{Region: cmp.Or(*region, plan.Region), Profile: *profile})
	if err != nil {
		return err
	}
	account, _, err := client.Caller(ctx)
	var lines []Line
	var notes []string
	if err == nil {
		lines, notes, err = Check(ctx, client, plan)
	}
	if advice := infraaws.Advice(err); advice != "" {
		return fmt.Errorf("%w\n%s", err, advice)
	}
	if err != nil {
		return err
	}
	if len(plan.Own) > 0 {
		notes = append(notes, fmt.Sprintf("the provider of the plan has %s: it may use another account than the credentials of this command", strings.Join(plan.Own, ", ")))
	}
	if _, err := fmt.Fprintf(out, "Account %s, region %s\n", account, client.Region); err != nil {
		return err
	}
	if err := write(out, lines, notes); err != nil {
		return err
	}
	for _, l := range lines {
		if l.NeedUnknown {
			return errors.New(l.Notes[0])
		}
	}
	if n := len(Shortages(lines)); n > 0 {
		return fmt.Errorf("the plan does not fit into the account: %d of its quotas too small", n)
	}
	return nil
}

func read(name string, in io.Reader) (need.Plan, error) {
	var text []byte
	var err error
	if name == "-" {
		text, err = io.ReadAll(in)
	} else {
		text, err = os.ReadFile(name)
	}
	if err != nil {
		return need.Plan{}, err
	}
	plan, err := need.Read(text)
	if err != nil {
		return plan, fmt.Errorf("%s: %w", name, err)
	}
	return plan, nil
}

// write writes a table of the quotas, and below it what does not fit.
func write(out io.Writer, lines []Line, notes []string) error {
	if len(lines) == 0 {
		_, err := fmt.Fprintln(out, "The plan makes nothing that these quotas limit.")
		if err != nil {
			return err
		}
	} else {
		table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
		_, _ = fmt.Fprintln(table, "QUOTA\tCODE\tNEEDED\tUSED\tLIMIT") // its error is Flush's
		for _, l := range lines {
			needed, used, limit := l.numbers()
			_, _ = fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", l.Name, cmp.Or(l.Code, "-"), needed, used, limit)
			for _, note := range l.Notes {
				notes = append(notes, l.Title()+": "+note)
			}
		}
		if err := table.Flush(); err != nil {
			return err
		}
	}
	for _, note := range notes {
		if _, err := fmt.Fprintln(out, "note: "+note); err != nil {
			return err
		}
	}
	for _, l := range Shortages(lines) {
		if _, err := fmt.Fprintln(out, "SHORTAGE: "+l.Shortage()); err != nil {
			return err
		}
	}
	return nil
}
