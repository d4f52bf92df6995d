package machines_test

import (
	"strings"
	"testing"

	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

const userScript = "#!/bin/sh\necho hello >/run/hello\n"

// TestUserData: a machine is launched with the user data that are configured, beside the provider's own. A
// change replaces it, and an import finds them.
func TestUserData(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	config := func(text any) providertest.Values {
		return providertest.With(providertest.WorkerConfig(network), providertest.Values{"user_data": text, "stage": providertest.Values{"containerd_version": "2.3.7"}})
	}
	worker.Must(config(userScript))
	worker.Converged(config(userScript))
	got := c.UserData(worker)
	for _, s := range []string{"MIME-Version: 1.0\n", "Content-Type: text/x-shellscript;", userScript, "#cloud-config\n"} {
		if !strings.Contains(got, s) {
			t.Errorf("the user data lack %q:\n%s", s, got)
		}
	}
	imported := c.Instance("k8s_machine")
	imported.Imports(worker.Get("id").(string))
	imported.Converged(config(userScript))

	for _, text := range []any{"#cloud-config\npackages: [jq]\n", nil} {
		before := worker.Get("id")
		ch := worker.Plan(config(text))
		if len(ch.Replace) != 1 || !strings.Contains(ch.Replace[0], "user_data") {
			t.Fatalf("%v: would replace because of %v", text, ch.Replace)
		}
		if said := worker.Dismiss().Failure(); said != "" {
			t.Fatal(said)
		}
		worker.Must(config(text))
		worker.Converged(config(text))
		if s, _ := text.(string); worker.Get("id") == before || !strings.Contains(c.UserData(worker), s) || strings.Contains(c.UserData(worker), "hello") {
			t.Errorf("%v: launched with\n%s", text, c.UserData(worker))
		}
	}
	c.Fatal(worker.Apply(worker.Plan(nil)))
	c.Fatal(network.Apply(network.Plan(nil)))
	c.Account.Empty()
}

// TestUnusableUserData: what EC2 or cloud-init would not take is an error of the plan, at the argument.
func TestUnusableUserData(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	for text, want := range map[string]string{
		"":                                     "at least 1",
		"echo hello":                           "Unknown kind of user data",
		"MIME-Version: 1.0\n":                  "A MIME message",
		"#!" + strings.Repeat("x", 16<<10):     "It has 16386 bytes",
		"#!" + strings.Repeat("x", 15<<10):     "With what the provider adds",
		"#!" + strings.Repeat("\u00e9", 6<<10): "a third more",
		"#cloud-config\nusers: [default]\n":    "users in #cloud-config is set by the provider",
	} {
		ch := c.Instance("k8s_machine").Plan(providertest.With(providertest.WorkerConfig(network), providertest.Values{"user_data": text}))
		if got := ch.Failure(); !strings.Contains(got, want) || !at(ch, "user_data") {
			t.Errorf("%.30q: %s", text, got)
		}
	}
	if ch := c.Instance("k8s_machine").Plan(providertest.With(providertest.WorkerConfig(network), providertest.Values{"user_data": providertest.Unknown})); ch.Failure() != "" {
		t.Errorf("unknown: %s", ch.Failure())
	}
}

// TestUserDataOfAnInterruptedCreate: an instance that a killed run has launched with other user data is not
// taken for the one that is wanted now.
func TestUserDataOfAnInterruptedCreate(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	config := func(text string) providertest.Values {
		return providertest.With(providertest.WorkerConfig(network), providertest.Values{"user_data": text})
	}
	ctx := c.Wire.Arm(t.Context(), 0, false)
	c.Wire.DieOn = "ssh"
	k := &providertest.Killed{T: t, Cloud: c, Object: c.Instance("k8s_machine")}
	k.Die(ctx, k.Object.Plan(config(userScript)))
	if !c.Wire.Dead() {
		t.Fatal("it did not use SSH")
	}
	next := c.Process(t)
	config = func(text string) providertest.Values {
		return providertest.With(providertest.WorkerConfig(next.Taken(network)), providertest.Values{"user_data": text})
	}
	worker := next.Instance("k8s_machine")
	ch := worker.CarryOut(worker.Plan(config("#!/bin/sh\n")))
	if got := strings.Join(strings.Fields(ch.Failure()), " "); !strings.Contains(got, "launched with other user_data") || !at(ch, "user_data") {
		t.Errorf("other user data: %q", got)
	}
	worker = next.Instance("k8s_machine")
	worker.Must(config(userScript))
	if n := len(next.Account.Cloud.Overview().Instances); n != 1 {
		t.Errorf("%d instances", n)
	}
	if awsmachine.CheckUserData(userScript) != nil {
		t.Error("the script is refused")
	}
}
