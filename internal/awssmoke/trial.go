package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

// trial is one run of the command.
type trial struct {
	options
	name    string // of the cluster: in every name and tag
	dir     string // everything that the run writes
	in      io.Reader
	out     io.Writer
	log     *os.File // every command and its output
	account *account
	ws      *workspace.Workspace
	planned planned
	report  report
	redact  *redactor
	pods    map[string]string // node -> pod, see startPods
	role    *role             // of the provider; nil if it has the caller's rights
	driver  driver            // of EBS, with -ebs
	lacking error             // why the role could not destroy what the caller then destroyed

	// compile builds packages of a repository into a directory; workspace.Build except in tests.
	compile func(ctx context.Context, root, dir string, packages ...string) error
}

// step is one part of a trial. It is run if the steps that it needs have passed.
type step struct {
	name  string
	run   func(context.Context) error
	needs string // another step; empty means none
}

const (
	stepLeftovers = "leftovers"
	stepBucket    = "bucket"
)

// preparation makes nothing in the account but the role, which costs nothing.
func (t *trial) preparation() []step {
	first := []step{{"account", t.identify, ""}}
	if t.role != nil {
		first = append(first, step{"role", t.makeRole, "account"})
	}
	if t.ebs {
		first = append(first, step{"chart", t.renderChart, "account"})
	}
	return append(first, []step{
		{"build", t.build, first[len(first)-1].name},
		{"terraform init", t.init, "build"},
		{"terraform plan", t.plan, "terraform init"},
		{"quotas", t.checkQuotas, "terraform plan"},
	}...)
}

// cluster makes the cluster and checks it. If a check fails, the others are made all the same: a
// second cluster costs as much as the first. A cluster that a role makes is too small for checks of pods.
func (t *trial) cluster() []step {
	if t.role != nil {
		return []step{
			{"terraform apply", t.apply, ""},
			{"kubeconfig", t.kubeconfig, "terraform apply"},
			{"nodes", t.checkNodes, "kubeconfig"},
			{"empty plan", t.checkPlan, "terraform apply"},
		}
	}
	all := []step{
		{"terraform apply", t.apply, ""},
		{"kubeconfig", t.kubeconfig, "terraform apply"},
		{"nodes", t.checkNodes, "kubeconfig"},
		{"pods", t.startPods, "kubeconfig"},
		{"DNS", t.checkDNS, "pods"},
		{"egress", t.checkEgress, "pods"},
		{"logs", t.checkLogs, "pods"},
		{"Service", t.checkService, "pods"},
		{"empty plan", t.checkPlan, "terraform apply"},
	}
	if t.ebs {
		all[0].needs = stepBucket
		all = append([]step{{stepBucket, t.makeBucket, ""}}, append(all, []step{
			{"EBS role", t.makeDriverRole, "pods"},
			{"EBS driver", t.installDriver, "EBS role"},
			{"EBS volume", t.moveVolume, "EBS driver"},
			{"EBS claim", t.deleteClaim, "EBS driver"},
		}...)...)
	}
	return all
}

// end is run whenever the apply was begun.
func (t *trial) end() []step {
	all := []step{
		{"terraform destroy", t.destroy, ""},
		{stepLeftovers, t.checkLeftovers, ""},
	}
	if t.ebs {
		all = append(all, []step{
			{"EBS leftovers", t.checkVolumes, ""},
			{"delete the EBS role", t.deleteDriverRole, ""},
			{"delete the bucket", t.deleteBucket, ""},
		}...)
	}
	return all
}

func newTrial(ctx context.Context, o options, in io.Reader, out io.Writer) (*trial, error) {
	random := make([]byte, 4)
	_, _ = rand.Read(random) // never fails
	t := &trial{options: o, name: "smoke-" + hex.EncodeToString(random), in: in, out: out, redact: newRedactor(), compile: workspace.Build}
	t.dir = filepath.Join(o.into, t.name)
	if err := os.MkdirAll(t.work(), 0o700); err != nil {
		return nil, err
	}
	var err error
	if t.log, err = os.OpenFile(filepath.Join(t.dir, "commands.log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return nil, err
	}
	t.report = report{Name: t.name, Began: time.Now().UTC().Truncate(time.Second)}
	t.account, err = openAccount(ctx, t.name)
	return t, err
}

func (t *trial) close() {
	if t.log != nil {
		_ = t.log.Close()
	}
}

func (t *trial) work() string        { return filepath.Join(t.dir, "work") }
func (t *trial) bin() string         { return filepath.Join(t.dir, "bin") }
func (t *trial) sshKey() string      { return filepath.Join(t.dir, "ssh_key") }
func (t *trial) providerLog() string { return filepath.Join(t.dir, "provider.log") }

// run makes the trial and writes its report. The end of trying does not end destroying.
func (t *trial) run(trying, destroying context.Context) error {
	if err := t.steps(trying, t.preparation()); err != nil {
		ended := t.withoutRole(destroying)
		if ended != nil {
			_, _ = fmt.Fprint(t.out, t.byHand())
		}
		return errors.Join(err, ended, t.writeReport(destroying))
	}
	if err := t.ask(); err != nil {
		return errors.Join(err, os.RemoveAll(t.dir))
	}
	if err := t.noteByHand(); err != nil {
		return errors.Join(err, t.withoutRole(destroying), t.writeReport(destroying))
	}
	err := t.steps(trying, t.cluster())
	ending, cancel := context.WithTimeoutCause(destroying, timeLimit, fmt.Errorf("not done within %s", timeLimit))
	defer cancel()
	ended := errors.Join(t.steps(ending, t.end()), t.withoutRole(destroying))
	if ended != nil {
		_, _ = fmt.Fprint(t.out, t.byHand())
	} else {
		ended = errors.Join(os.Remove(t.byHandFile()), os.RemoveAll(t.work()), os.RemoveAll(t.bin()), os.RemoveAll(t.sshKey()))
	}
	return errors.Join(err, t.lacking, ended, t.writeReport(destroying))
}

// withoutRole deletes the role, if there is one.
func (t *trial) withoutRole(ctx context.Context) error {
	if t.role == nil || !t.role.begun {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeLimit, fmt.Errorf("not done within %s", timeLimit))
	defer cancel()
	return t.steps(ctx, []step{{"delete the role", t.deleteRole, ""}})
}

// steps runs steps one after the other and returns the errors of all. After the end of ctx no
// further step is run.
func (t *trial) steps(ctx context.Context, all []step) error {
	var errs []error
	passed := map[string]bool{"": true}
	for _, s := range all {
		result := stepResult{Name: s.name, Result: notRun}
		if passed[s.needs] && ctx.Err() == nil {
			_, _ = fmt.Fprintf(t.out, "==> %s\n", s.name)
			began := time.Now()
			err := s.run(ctx)
			result.Seconds = time.Since(began).Seconds()
			if result.Result = passedStep; err != nil {
				if ctx.Err() != nil {
					err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
				}
				result.Result, result.Error = failed, err.Error()
				errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
			}
			passed[s.name] = err == nil
			_, _ = fmt.Fprintf(t.out, "    %s after %.1f s\n", result.Result, result.Seconds)
		}
		t.report.Steps = append(t.report.Steps, result)
	}
	if len(errs) == 0 && ctx.Err() != nil {
		errs = append(errs, context.Cause(ctx)) // between two steps
	}
	return errors.Join(errs...)
}

// say prints a line about the step that is running.
func (t *trial) say(format string, args ...any) {
	_, _ = fmt.Fprintf(t.out, "    "+format+"\n", args...)
}
