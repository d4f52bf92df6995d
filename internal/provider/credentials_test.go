package provider_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestKeyAsPeopleHaveIt: a private key is accepted if its line breaks became \n on the way, and
// from a path that begins with ~.
func TestKeyAsPeopleHaveIt(t *testing.T) {
	t.Parallel()
	key := providertest.SSHKey(t)
	one := strings.ReplaceAll(key, "\n", `\n`)
	files := map[string]string{"/home/u/.ssh/id": key, "/home/u/.ssh/one-line": one, "/home/u/sums": strings.Repeat("0", 64) + "  dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet\n"}
	for name, test := range map[string]struct {
		config providertest.Values
		env    map[string]string
		want   string // an error; empty for none
	}{
		"one line":                       {providertest.Values{"ssh": providertest.Values{"private_key": one}}, nil, ""},
		"of Windows":                     {providertest.Values{"ssh": providertest.Values{"private_key": strings.ReplaceAll(key, "\n", `\r\n`)}}, nil, ""},
		"line breaks of Windows":         {providertest.Values{"ssh": providertest.Values{"private_key": strings.ReplaceAll(key, "\n", "\r\n")}}, nil, ""},
		"one line in the environment":    {nil, map[string]string{"K8S_SSH_PRIVATE_KEY": one}, ""},
		"one line in a file":             {providertest.Values{"ssh": providertest.Values{"private_key_file": "~/.ssh/one-line"}}, nil, ""},
		"a path below ~":                 {providertest.Values{"ssh": providertest.Values{"private_key_file": "~/.ssh/id"}}, nil, ""},
		"such a path in the environment": {nil, map[string]string{"K8S_SSH_PRIVATE_KEY_FILE": "~/.ssh/id"}, ""},
		"checksums below ~":              {providertest.Values{"artifact_checksums": "~/sums"}, nil, ""},
		"nothing there":                  {providertest.Values{"ssh": providertest.Values{"private_key_file": "~/.ssh/none"}}, nil, "/home/u/.ssh/none"},
		"the home of another user":       {providertest.Values{"ssh": providertest.Values{"private_key_file": "~root/.ssh/id"}}, nil, "~root/.ssh/id"},
		"a line that is missing":         {providertest.Values{"ssh": providertest.Values{"private_key": strings.Join(strings.Split(one, `\n`)[:3], `\n`)}}, nil, "not a private key"},
		"lines that were joined":         {nil, map[string]string{"K8S_SSH_PRIVATE_KEY": strings.ReplaceAll(key, "\n", " ")}, "A common reason is a line break that was lost"},
	} {
		p := provider.New("test")
		p.Environment.Getenv = func(name string) string {
			if name == "HOME" {
				return "/home/u"
			}
			return test.env[name]
		}
		p.Environment.ReadFile = func(name string) ([]byte, error) {
			text, ok := files[name]
			if !ok {
				return nil, &fs.PathError{Op: "open", Path: name, Err: errors.New("no such file or directory")}
			}
			return []byte(text), nil
		}
		got := configure(t, p, test.config)
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, wanted %q", name, got, test.want)
		}
		if got == "" && !strings.Contains(name, "checksums") && len(p.Sessions[0].SSH.Signers) != 1 {
			t.Errorf("%s: there is no key", name)
		}
	}
}

// TestHome: paths of AWS's files may begin with ~. It is not parallel, since it changes the environment.
func TestHome(t *testing.T) {
	home, c := t.TempDir(), providertest.NewCloud(t)
	t.Setenv("HOME", home)
	for name, text := range map[string]string{
		"config": "[profile lab]\nregion = us-east-1\n", "credentials": "[lab]\naws_access_key_id = " + account.AccessKey + "\naws_secret_access_key = " + account.SecretKey + "\n",
		"token": workspaces(t, c)(time.Now().Add(time.Hour)) + "\n",
	} {
		if err := os.WriteFile(filepath.Join(home, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.Role("tfc", `{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"sts:AssumeRoleWithWebIdentity","Principal":{"Federated":"arn:aws:iam::123456789012:oidc-provider/app.terraform.io"}}}`)
	c.More = providertest.Values{"access_key": nil, "secret_key": nil, "region": nil, "profile": "lab", "shared_config_files": []any{"~/config"}, "shared_credentials_files": []any{"~/credentials"}}
	c = c.Process(t)
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	c.More = providertest.Values{"access_key": nil, "secret_key": nil, "assume_role_with_web_identity": providertest.Values{"role_arn": "arn:aws:iam::123456789012:role/tfc", "session_name": "run", "web_identity_token_file": "~/token"}}
	c = c.Process(t)
	if failure := c.Taken(network).Refreshed(); failure != "" {
		t.Error(failure)
	}
}

// TestCredentialsRefused: an error about roles and sessions has what AWS said about the request,
// nothing else that AWS said, and what to do.
func TestCredentialsRefused(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	c.Role("others", `{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":"sts:AssumeRole","Principal":{"AWS":"arn:aws:iam::123456789012:user/somebody-else"}}}`)
	c.Role("short", "")
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	fails := func(more providertest.Values, words ...string) {
		t.Helper()
		c.More = more
		failure := c.Process(t).Taken(network).Refreshed()
		t.Log(failure)
		if providertest.Mention(t, failure, words...); strings.Contains(failure, "get identity") || strings.Contains(failure, "ec2:Describe") || strings.Contains(failure, "docs/guides/iam") {
			t.Errorf("it speaks of something else: %s", failure)
		}
	}
	role := func(name string) providertest.Values {
		return providertest.Values{"assume_role": providertest.Values{"role_arn": "arn:aws:iam::123456789012:role/" + name, "session_name": "run"}}
	}
	fails(role("others"), "no AWS credentials", "sts:AssumeRole", "role/others", "The role cannot be assumed. Its trust policy must name this caller")
	fails(role("nobody"), "The role cannot be assumed")
	fails(providertest.Values{"secret_key": "wrong"}, "SignatureDoesNotMatch", "the clock of this computer")

	c.Account.Fault(fault.Fault{Kind: fault.ShortSessions, Seconds: 1})
	out := providertest.Answer[*sts.AssumeRoleOutput](t)(c.Client.STS.AssumeRole(t.Context(), &sts.AssumeRoleInput{RoleArn: sdk.String("arn:aws:iam::123456789012:role/short"), RoleSessionName: sdk.String("expires")}))
	time.Sleep(1100 * time.Millisecond)
	fails(providertest.Values{"access_key": *out.Credentials.AccessKeyId, "secret_key": *out.Credentials.SecretAccessKey, "token": *out.Credentials.SessionToken}, "The credentials have expired", "renew them")
}
