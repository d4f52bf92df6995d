package machines_test

import (
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestRootVolumeKey: the root volume is encrypted with the configured key, in whatever form it is
// written, and another key replaces the machine. Without a configured key the volume has the
// account's key. An import finds the key.
func TestRootVolumeKey(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	config := func(key any) providertest.Values {
		return providertest.With(providertest.WorkerConfig(network), providertest.Values{"root_volume_kms_key_id": key})
	}
	launched := func(key any) *providertest.Instance {
		t.Helper()
		worker := c.Instance("k8s_machine")
		worker.Must(config(key))
		worker.Converged(config(key))
		return worker
	}
	end := func(worker *providertest.Instance) {
		t.Helper()
		if said := worker.Dismiss().Failure(); said != "" {
			t.Fatal(said)
		}
	}

	worker := launched(providertest.RootKeyID)
	if got := sdk.ToString(c.RootVolume(t, worker).KmsKeyId); got != providertest.RootKeyARN {
		t.Errorf("the volume has the key %q", got)
	}
	worker.Converged(config(providertest.RootKeyARN))
	worker.Converged(config(nil)) // the volume keeps its key
	imported := c.Instance("k8s_machine")
	imported.Imports(worker.Get("id").(string))
	imported.Converged(config(providertest.RootKeyID))
	imported.Converged(config(nil))
	for _, other := range []any{providertest.OtherKeyID, providertest.Unknown} {
		if ch := worker.Plan(config(other)); len(ch.Replace) != 1 || !strings.Contains(ch.Replace[0], "root_volume_kms_key_id") {
			t.Errorf("%v: would replace because of %v", other, ch.Replace)
		}
	}
	if ch := worker.Plan(config("alias/nodes")); !strings.Contains(ch.Failure(), "An alias cannot be compared with a key") || !at(ch, "root_volume_kms_key_id") {
		t.Errorf("an alias in place of an id: %q", ch.Failure())
	}
	end(worker)

	worker = launched("alias/nodes")
	worker.Converged(config("arn:aws:kms:us-east-1:123456789012:alias/nodes"))
	if ch := worker.Plan(config("alias/others")); len(ch.Replace) != 1 {
		t.Errorf("another alias: would replace because of %v", ch.Replace)
	}
	end(worker)

	worker = launched(nil)
	if got := sdk.ToString(c.RootVolume(t, worker).KmsKeyId); !strings.HasPrefix(got, "arn:aws:kms:") {
		t.Errorf("the volume has the key %q", got)
	}
	for _, key := range []any{providertest.RootKeyID, "alias/nodes"} {
		if ch := worker.Plan(config(key)); len(ch.Replace) != 1 {
			t.Errorf("%v where there was none: would replace because of %v", key, ch.Replace)
		}
	}
	end(worker)

	if ch := c.Instance("k8s_machine").Plan(config("my key")); !strings.Contains(ch.Failure(), "neither the id, nor the ARN") || !at(ch, "root_volume_kms_key_id") {
		t.Errorf("no key: %q", ch.Failure())
	}
	c.Account.Fault(fault.Fault{Kind: fault.Key, Name: "alias/off"})
	for key, names := range map[string]string{"alias/off": "alias/off", "arn:aws:kms:eu-west-1:123456789012:key/" + providertest.RootKeyID: "eu-west-1"} {
		worker := c.Instance("k8s_machine")
		ch := worker.CarryOut(worker.Plan(config(key)))
		got := strings.Join(strings.Fields(ch.Failure()), " ")
		if !strings.Contains(got, "Client.InvalidKMSKey.InvalidState") || !strings.Contains(got, "cannot use the KMS key") || !strings.Contains(got, names) || !at(ch, "root_volume_kms_key_id") {
			t.Errorf("%s: %q", key, got)
		}
		end(worker)
	}
	c.Fatal(network.Apply(network.Plan(nil)))
	c.Account.Empty()
}
