package provider

import (
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/hashicorp/terraform-plugin-framework/types"

	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
)

const (
	rootKeyID  = "1234abcd-12ab-34cd-56ef-1234567890ab"
	rootKeyARN = "arn:aws:kms:us-east-1:123456789012:key/" + rootKeyID
	otherKeyID = "00000000-12ab-34cd-56ef-1234567890ab"
)

// TestRootVolumeKey: the root volume is encrypted with the key that is configured, however it is written, and
// another one replaces the machine. Without one it has the account's, and an import finds the key.
func TestRootVolumeKey(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network := c.instance("k8s_network")
	network.must(networkConfig())
	config := func(key any) values { return with(workerConfig(network), values{"root_volume_kms_key_id": key}) }
	launched := func(key any) *instance {
		t.Helper()
		worker := c.instance("k8s_machine")
		worker.must(config(key))
		worker.settled(config(key))
		return worker
	}
	end := func(worker *instance) {
		t.Helper()
		if said := worker.dismiss().failure(); said != "" {
			t.Fatal(said)
		}
	}

	worker := launched(rootKeyID)
	if got := sdk.ToString(c.rootVolume(t, worker).KmsKeyId); got != rootKeyARN {
		t.Errorf("the volume has the key %q", got)
	}
	worker.settled(config(rootKeyARN))
	worker.settled(config(nil)) // the volume keeps its key
	imported := c.instance("k8s_machine")
	imported.imports(worker.get("id").(string))
	imported.settled(config(rootKeyID))
	imported.settled(config(nil))
	for _, other := range []any{otherKeyID, unknown} {
		if ch := worker.plan(config(other)); len(ch.replace) != 1 || !strings.Contains(ch.replace[0], "root_volume_kms_key_id") {
			t.Errorf("%v: would replace because of %v", other, ch.replace)
		}
	}
	if ch := worker.plan(config("alias/nodes")); !strings.Contains(ch.failure(), "An alias cannot be compared with a key") || !at(ch, "root_volume_kms_key_id") {
		t.Errorf("an alias in place of an id: %q", ch.failure())
	}
	end(worker)

	worker = launched("alias/nodes")
	worker.settled(config("arn:aws:kms:us-east-1:123456789012:alias/nodes"))
	if ch := worker.plan(config("alias/others")); len(ch.replace) != 1 {
		t.Errorf("another alias: would replace because of %v", ch.replace)
	}
	end(worker)

	worker = launched(nil)
	if got := sdk.ToString(c.rootVolume(t, worker).KmsKeyId); !strings.HasPrefix(got, "arn:aws:kms:") {
		t.Errorf("the volume has the key %q", got)
	}
	for _, key := range []any{rootKeyID, "alias/nodes"} {
		if ch := worker.plan(config(key)); len(ch.replace) != 1 {
			t.Errorf("%v where there was none: would replace because of %v", key, ch.replace)
		}
	}
	end(worker)

	if ch := c.instance("k8s_machine").plan(config("my key")); !strings.Contains(ch.failure(), "neither the id, nor the ARN") || !at(ch, "root_volume_kms_key_id") {
		t.Errorf("no key: %q", ch.failure())
	}
	c.account.Fault(fault.Fault{Kind: fault.Key, Name: "alias/off"})
	for key, names := range map[string]string{"alias/off": "alias/off", "arn:aws:kms:eu-west-1:123456789012:key/" + rootKeyID: "eu-west-1"} {
		worker := c.instance("k8s_machine")
		ch := worker.carryOut(worker.plan(config(key)))
		got := strings.Join(strings.Fields(ch.failure()), " ")
		if !strings.Contains(got, "Client.InvalidKMSKey.InvalidState") || !strings.Contains(got, "cannot use the KMS key") || !strings.Contains(got, names) || !at(ch, "root_volume_kms_key_id") {
			t.Errorf("%s: %q", key, got)
		}
		end(worker)
	}
	c.fatal(network.apply(network.plan(nil)))
	c.account.Empty()
}

// TestSeeRootKey: only a key that is certainly another one is taken over from the volume.
func TestSeeRootKey(t *testing.T) {
	t.Parallel()
	const other = "arn:aws:kms:us-east-1:123456789012:key/" + otherKeyID
	for _, tt := range []struct{ state, found, want types.String }{
		{types.StringNull(), types.StringValue(other), types.StringNull()},
		{types.StringValue("alias/nodes"), types.StringValue(other), types.StringValue("alias/nodes")},
		{types.StringValue(rootKeyID), types.StringValue(rootKeyARN), types.StringValue(rootKeyID)},
		{types.StringValue(rootKeyID), types.StringNull(), types.StringValue(rootKeyID)},
		{types.StringValue(rootKeyID), types.StringValue(other), types.StringValue(other)},
		{types.StringValue(rootKeyARN), types.StringValue(other), types.StringValue(other)},
	} {
		m := machineModel{RootVolumeKey: tt.state}
		m.seeRootKey(awsmachine.Machine{RootVolumeKey: tt.found.ValueString()})
		if !m.RootVolumeKey.Equal(tt.want) {
			t.Errorf("%v, found %v: %v, want %v", tt.state, tt.found, m.RootVolumeKey, tt.want)
		}
	}
}
