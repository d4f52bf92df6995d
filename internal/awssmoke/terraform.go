package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

const planFile = "trial.tfplan"

// plan plans the cluster, and estimates the cost of the plan.
func (t *trial) plan(ctx context.Context) error {
	if _, err := t.ws.Run(ctx, "plan", "-no-color", "-out="+planFile); err != nil {
		return brief(err)
	}
	text, err := t.ws.Run(ctx, "show", "-json", planFile)
	if err != nil {
		return brief(err)
	}
	if t.planned, err = readPlan([]byte(text)); err != nil {
		return err
	}
	t.report.version("Kubernetes", t.planned.kubernetes)
	t.report.version("etcd", t.planned.etcd)
	t.report.Cost = costLine(t.planned, t.account.client.Region)
	return nil
}

func (t *trial) apply(ctx context.Context) error {
	out, err := t.ws.Run(ctx, "apply", "-no-color", "-auto-approve", planFile)
	t.report.Warnings = append(t.report.Warnings, warnings(out)...)
	return brief(err)
}

// warnings returns the titles of the warnings in Terraform's output.
func warnings(out string) (titles []string) {
	for line := range strings.Lines(out) {
		if _, title, found := strings.Cut(line, "Warning: "); found {
			titles = append(titles, strings.TrimSpace(title))
		}
	}
	return titles
}

func (t *trial) checkPlan(ctx context.Context) error {
	changes, text, err := t.ws.Plan(ctx)
	if err != nil {
		return brief(err)
	}
	if changes {
		return fmt.Errorf("the plan after the apply is not empty:\n%s", text)
	}
	return nil
}

// destroy destroys the cluster. What a role may not destroy, the caller destroys, so that no policy leaves machines that cost
// money.
func (t *trial) destroy(ctx context.Context) error {
	_, err := t.ws.Destroy(ctx)
	if err == nil || t.role == nil {
		return brief(err)
	}
	t.say("the role could not destroy everything: once more with the caller's rights")
	t.lacking = fmt.Errorf("terraform destroy by the role: %w", brief(err))
	t.report.Notes = append(t.report.Notes, t.lacking.Error())
	if err := t.ws.WriteFile(overrideFile, t.override("")); err != nil {
		return err
	}
	_, err = t.ws.Destroy(ctx)
	return brief(err)
}

// brief returns a failed command's error without its standard output, which has every step; the log
// has it all.
func brief(err error) error {
	var failed *workspace.Error
	if !errors.As(err, &failed) {
		return err
	}
	return fmt.Errorf("terraform %s: exit status %d\n%s", failed.Args[0], failed.Code, strings.TrimSpace(failed.Stderr))
}

func (t *trial) endpoint(ctx context.Context) (string, error) {
	var url string
	err := t.ws.Output(ctx, "endpoint", &url)
	return url, brief(err)
}

func (t *trial) kubeconfigFile() string { return filepath.Join(t.work(), "kubeconfig") }
