package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/workspace"
)

// whoami answers with the client's address.
const whoami = "https://checkip.amazonaws.com/"

// tagTrial is a tag of everything that a trial makes, beside the cluster's own.
const tagTrial = "aws-smoke-trial"

// identify finds out whose account it is.
func (t *trial) identify(ctx context.Context) error {
	if err := t.account.identify(ctx); err != nil {
		return err
	}
	if !t.once && strings.HasSuffix(t.account.arn, ":root") {
		return errors.New("AWS lets the root user of an account assume no role: be a user or a role, or leave out the trial by a role with -once")
	}
	t.redact.known("account", t.account.id)
	t.redact.known("arn", t.account.arn)
	for _, secret := range t.account.secrets(ctx) {
		t.redact.known("credential", secret)
	}
	home, _ := os.UserHomeDir()
	t.redact.known("home", home)
	t.report.Region, t.report.Against, t.report.Rights = t.account.client.Region, against(os.Getenv), "the caller's"
	if t.role != nil {
		t.report.Rights = "a role with " + strings.Join(documented, " and ") + " of examples/iam"
	}
	return nil
}

// against says whose API the environment names.
func against(getenv func(string) string) string {
	for _, name := range []string{"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_EC2", "AWS_ENDPOINT_URL_SSM", "AWS_ENDPOINT_URL_STS"} {
		if getenv(name) != "" {
			return "not AWS: " + name + " names another endpoint"
		}
	}
	return "AWS"
}

// build builds the provider and k8s-kubeconfig from this tree, and makes the working directory.
func (t *trial) build(ctx context.Context) error {
	kubectl, err := exec.LookPath(t.kubectl)
	if err != nil {
		return fmt.Errorf("kubectl checks the cluster: install it, or name it with -kubectl: %w", err)
	}
	t.kubectl = kubectl
	if err := t.compile(ctx, t.root, t.bin(), ".", "./cmd/k8s-kubeconfig"); err != nil {
		return err
	}
	cli, err := workspace.FindCLI(func() (string, error) { return t.tofu(ctx) })
	if err != nil {
		return err
	}
	vars, err := t.variables(ctx)
	if err != nil {
		return err
	}
	return t.workspace(cli, filepath.Join(t.bin(), "terraform-provider-k8s"), vars)
}

// tofu builds OpenTofu, for a computer with neither Terraform nor OpenTofu.
func (t *trial) tofu(ctx context.Context) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "run", "./cmd/k8s-lab", "artifacts", "--tool", "tofu")
	cmd.Dir, cmd.Stderr = t.root, t.log
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("there is neither terraform nor tofu on the PATH, and OpenTofu could not be built: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// workspace makes the working directory. The machines accept a key of their own.
func (t *trial) workspace(cli, provider string, vars map[string]any) error {
	key := t.sshKey()
	if err := workspace.SSHKey(key); err != nil {
		return err
	}
	ws, err := workspace.New(workspace.Options{
		Dir: t.work(), CLI: cli, Provider: provider, Config: filepath.Join(t.root, "examples", "ha-cluster"), Log: t.log,
		Env: append(inherited(os.Environ()), "K8S_SSH_PRIVATE_KEY_FILE="+key, "TF_LOG_PROVIDER=DEBUG", "TF_LOG_PATH="+t.providerLog()),
	})
	if err != nil {
		return err
	}
	ws.Apart = true
	t.ws = ws
	text, err := json.MarshalIndent(vars, "", "  ")
	if err != nil {
		return err
	}
	if t.ebs {
		for name, text := range t.issuerFiles() {
			err = errors.Join(err, ws.WriteFile(name, text))
		}
	}
	return errors.Join(err,
		ws.WriteFile("trial.auto.tfvars.json", string(text)),
		ws.WriteFile(overrideFile, t.override(t.assume())))
}

// overrideFile has what a trial adds to the example's provider block.
const overrideFile = "trial_override.tf"

// assume is the argument with which the provider assumes the role; empty without one.
func (t *trial) assume() string {
	if t.role == nil {
		return ""
	}
	return fmt.Sprintf("  assume_role = { role_arn = %q, session_name = %q }\n", t.role.arn, t.name)
}

func (t *trial) override(assume string) string {
	return fmt.Sprintf("provider \"k8s\" {\n  default_tags = { %q = %q }\n%s}\n", tagTrial, t.name, assume)
}

// inherited returns the variables of this process that the provider may have: how to reach AWS and
// what to download, but nothing that changes the example or the keys of its machines.
func inherited(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		return strings.HasPrefix(kv, "TF_") || strings.HasPrefix(kv, "K8S_SSH_") || strings.HasPrefix(kv, "SSH_AUTH_SOCK=")
	})
}

// variables returns the example's variables: those of -var-file, the name of the cluster, and who
// may reach it.
func (t *trial) variables(ctx context.Context) (map[string]any, error) {
	vars := map[string]any{}
	if t.varFile != "" {
		text, err := os.ReadFile(t.varFile)
		if err != nil {
			return nil, err
		}
		if err := json.Unmarshal(text, &vars); err != nil {
			return nil, fmt.Errorf("%s: %w", t.varFile, err)
		}
	}
	vars["cluster"] = t.name
	if t.role != nil {
		vars["controllers"], vars["workers"] = 1, 1
	}
	if t.adminCIDR != "" {
		vars["admin_cidrs"] = []string{t.adminCIDR}
	}
	if vars["admin_cidrs"] == nil {
		address, err := publicAddress(ctx, whoami)
		if err != nil {
			return nil, fmt.Errorf("finding out this computer's public address, which is not needed with -admin-cidr: %w", err)
		}
		vars["admin_cidrs"] = []string{address.String() + "/32"}
	}
	return vars, nil
}

// publicAddress asks a web server which IPv4 address this computer has on the internet.
func publicAddress(ctx context.Context, url string) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return netip.Addr{}, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return netip.Addr{}, err
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, 100))
	if err != nil {
		return netip.Addr{}, err
	}
	address, err := netip.ParseAddr(strings.TrimSpace(string(text)))
	if err != nil || !address.Is4() || res.StatusCode != http.StatusOK {
		return netip.Addr{}, fmt.Errorf("%s answers %s, %q: no IPv4 address", url, res.Status, text)
	}
	return address, nil
}

// init installs the provider, and notes the versions.
func (t *trial) init(ctx context.Context) error {
	if err := t.ws.Init(ctx); err != nil {
		return err
	}
	version, err := t.ws.Run(ctx, "version")
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(version, "\n")
	t.report.version("CLI", first)
	t.report.version("provider", t.commit(ctx))
	t.report.version("Go", runtime.Version()+" "+runtime.GOOS+"/"+runtime.GOARCH)
	return nil
}

// commit returns the commit of the tree that the provider is built from.
func (t *trial) commit(ctx context.Context) string {
	cmd := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--abbrev=12")
	cmd.Dir = t.root
	out, err := cmd.Output()
	if err != nil {
		return "of no commit"
	}
	return strings.TrimSpace(string(out))
}
