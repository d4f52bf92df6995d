package provider

import (
	"strings"
	"testing"

	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
)

const userScript = "#!/bin/sh\necho hello >/run/hello\n"

// TestUserData: a machine is launched with the user data that are configured, beside the provider's own. A
// change replaces it, and an import finds them.
func TestUserData(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(networkConfig())
	config := func(text any) values {
		return with(workerConfig(network), values{"user_data": text, "stage": values{"containerd_version": "2.3.7"}})
	}
	worker.must(config(userScript))
	worker.settled(config(userScript))
	got := c.userData(worker)
	for _, s := range []string{"MIME-Version: 1.0\n", "Content-Type: text/x-shellscript;", userScript, "#cloud-config\n"} {
		if !strings.Contains(got, s) {
			t.Errorf("the user data lack %q:\n%s", s, got)
		}
	}
	imported := c.instance("k8s_machine")
	imported.imports(worker.get("id").(string))
	imported.settled(config(userScript))

	for _, text := range []any{"#cloud-config\npackages: [jq]\n", nil} {
		before := worker.get("id")
		ch := worker.plan(config(text))
		if len(ch.replace) != 1 || !strings.Contains(ch.replace[0], "user_data") {
			t.Fatalf("%v: would replace because of %v", text, ch.replace)
		}
		if said := worker.dismiss().failure(); said != "" {
			t.Fatal(said)
		}
		worker.must(config(text))
		worker.settled(config(text))
		if s, _ := text.(string); worker.get("id") == before || !strings.Contains(c.userData(worker), s) || strings.Contains(c.userData(worker), "hello") {
			t.Errorf("%v: launched with\n%s", text, c.userData(worker))
		}
	}
	c.fatal(worker.apply(worker.plan(nil)))
	c.fatal(network.apply(network.plan(nil)))
	c.account.Empty()
}

// TestUnusableUserData: what EC2 or cloud-init would not take is an error of the plan, at the argument.
func TestUnusableUserData(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network := c.instance("k8s_network")
	network.must(networkConfig())
	for text, want := range map[string]string{
		"":                                     "at least 1",
		"echo hello":                           "Unknown kind of user data",
		"MIME-Version: 1.0\n":                  "A MIME message",
		"#!" + strings.Repeat("x", 16<<10):     "It has 16386 bytes",
		"#!" + strings.Repeat("x", 15<<10):     "With what the provider adds",
		"#!" + strings.Repeat("\u00e9", 6<<10): "a third more",
		"#cloud-config\nusers: [default]\n":    "users in #cloud-config is set by the provider",
	} {
		ch := c.instance("k8s_machine").plan(with(workerConfig(network), values{"user_data": text}))
		if got := ch.failure(); !strings.Contains(got, want) || !at(ch, "user_data") {
			t.Errorf("%.30q: %s", text, got)
		}
	}
	if ch := c.instance("k8s_machine").plan(with(workerConfig(network), values{"user_data": unknown})); ch.failure() != "" {
		t.Errorf("unknown: %s", ch.failure())
	}
}

// TestUserDataOfAnInterruptedCreate: an instance that a killed run has launched with other user data is not
// taken for the one that is wanted now.
func TestUserDataOfAnInterruptedCreate(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network := c.instance("k8s_network")
	network.must(networkConfig())
	config := func(text string) values { return with(workerConfig(network), values{"user_data": text}) }
	ctx := c.wire.arm(t.Context(), 0, false)
	c.wire.dieOn = "ssh"
	k := &killed{t: t, cloud: c, object: c.instance("k8s_machine")}
	k.die(ctx, k.object.plan(config(userScript)))
	if !c.wire.dead() {
		t.Fatal("it did not use SSH")
	}
	next := c.process(t)
	config = func(text string) values { return with(workerConfig(next.taken(network)), values{"user_data": text}) }
	worker := next.instance("k8s_machine")
	ch := worker.carryOut(worker.plan(config("#!/bin/sh\n")))
	if got := strings.Join(strings.Fields(ch.failure()), " "); !strings.Contains(got, "launched with other user_data") || !at(ch, "user_data") {
		t.Errorf("other user data: %q", got)
	}
	worker = next.instance("k8s_machine")
	worker.must(config(userScript))
	if n := len(next.account.Cloud.Overview().Instances); n != 1 {
		t.Errorf("%d instances", n)
	}
	if awsmachine.CheckUserData(userScript) != nil {
		t.Error("the script is refused")
	}
}
