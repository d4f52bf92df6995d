// Package variants_test builds small clusters of images that differ from Debian's as the images of others do: see
// variant.go of internal/lab/machine. make soak PART=variants runs it.
package variants_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
)

var suite *harness.Suite

func TestMain(m *testing.M) {
	if os.Getenv("K8S_VARIANTS") == "" {
		fmt.Println("skipped: make soak PART=variants runs it")
		return
	}
	os.Exit(harness.MainOn(m, "13", func(s *harness.Suite) { suite = s }))
}

var machines = []string{"controller-0", "worker-0", "lb-0"}

// differs prints "yes" on a machine of the variant, after its cluster has been made.
var differs = map[string]string{
	"admin-group":          "getent group admin | grep -q '^admin:' && id -gn admin | grep -qx admin && echo yes",
	"large":                "echo yes", // the size is in EC2 only
	"hardened-sshd":        "echo yes", // the difference is gone by now
	"noexec-tmp":           "printf '#!/bin/sh\n' >/tmp/x; chmod +x /tmp/x; /tmp/x 2>/dev/null || echo yes",
	"fips":                 `test "$(ls /etc/ssh/ssh_host_*_key.pub)" = /etc/ssh/ssh_host_ecdsa_key.pub && echo yes`,
	"upgrades-and-reboots": "test -e /var/lib/cloud/instance/sem/config_power_state_change && echo yes",
}

// TestVariants: apply, an empty plan and destroy for each variant. The two that cannot be used as they are say what
// to change, and lose nothing.
func TestVariants(t *testing.T) {
	for _, variant := range machine.Variants() {
		t.Run(variant, func(t *testing.T) {
			if variant == "fips" {
				suite.SSH = ecdsaKey(t)
			}
			image := strings.TrimSpace(harness.Must[string](t)(suite.Lab(t.Context(), "publish", "13", variant)))
			c := suite.Cluster(suite.Workspace(t, variant, suite.CLI, filepath.Join(suite.Root, "examples", "ha-cluster")))
			c.WS.Env = append(c.WS.Env, "TF_VAR_ami="+image)
			write(t, c, "one.auto.tfvars", "controllers = 1\nworkers = 1\n")
			step := harness.Steps(t)
			switch variant {
			case "large":
				step("the default root volume is too small", func(t *testing.T) {
					_, err := c.WS.Apply(t.Context())
					harness.Refused(t, err, "root_volume_size", image+" needs 30")
					write(t, c, "size_override.tf", sized("controller")+sized("worker")+sized("lb"))
				})
			case "hardened-sshd":
				step("sshd forwards nothing", func(t *testing.T) { forwardsNothing(t, c) })
			}
			step("apply", func(t *testing.T) {
				c.Apply(t)
				c.Learn(t)
			})
			step("second plan is empty", c.NoChanges)
			step("the machines differ", func(t *testing.T) {
				for _, m := range machines {
					if got := c.Sh(t, m, differs[variant]); !strings.HasSuffix(strings.TrimSpace(got), "yes") {
						t.Errorf("%s says %q", m, got)
					}
				}
				c.Kubectl(t, "wait", "--for=condition=Ready", "node/worker-0", "--timeout=120s")
			})
			step("destroy leaves nothing", c.Destroy)
		})
	}
}

// replacedMachine is a machine's line in a plan. A role that could not be made is made anew.
var replacedMachine = regexp.MustCompile(`# k8s_machine\.\S+ (is tainted, so )?must be replaced`)

// forwardsNothing checks that an apply names the setting of sshd, and goes on with the same machines once it is gone.
func forwardsNothing(t *testing.T, c *harness.Cluster) {
	_, err := c.WS.Apply(t.Context())
	harness.Refused(t, err, "forwards no connection", "AllowTcpForwarding", "nothing has been changed", "AllowTcpForwarding local (or yes)")
	for _, m := range machines {
		suite.Console(t, m, "test -z \"$(ls /etc/haproxy /etc/etcd /etc/kubernetes 2>/dev/null)\" && rm /etc/ssh/sshd_config.d/10-variant.conf && systemctl reload ssh")
	}
	_, text, err := c.WS.Plan(t.Context())
	if err != nil || replacedMachine.MatchString(text) {
		t.Errorf("%v; the plan after the refusal:\n%s", err, text)
	}
}

func sized(name string) string {
	return fmt.Sprintf("resource \"k8s_machine\" %q {\n  root_volume_size = 30\n}\n", name)
}

func write(t *testing.T, c *harness.Cluster, name, text string) {
	t.Helper()
	if err := c.WS.WriteFile(name, text); err != nil {
		t.Fatal(err)
	}
}

// ecdsaKey makes the provider's key for machines that know no ed25519.
func ecdsaKey(t *testing.T) string {
	t.Helper()
	key := harness.Must[*ecdsa.PrivateKey](t)(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	block := harness.Must[*pem.Block](t)(ssh.MarshalPrivateKey(key, ""))
	name := filepath.Join(suite.Dir, "ecdsa_key")
	if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
