package machines_test

import (
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"golang.org/x/crypto/ssh"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestHostKeyTag: the host key in a state is never replaced by the key in a tag, which whoever may write tags can
// choose. Without the tag, the state is enough.
func TestHostKeyTag(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	config := providertest.WorkerConfig(network)
	worker.Must(config)
	pinned := worker.Get("host_key").(string)
	theirs := providertest.PublicKey(t)
	for tag, mentioned := range map[string]string{theirs: fingerprint(t, theirs), "no key": `"no key"`} {
		c.TagHostKey(t, worker, tag)
		said := worker.Refreshed()
		providertest.Mention(t, said, "worker-0", worker.Get("id").(string), mentioned, fingerprint(t, pinned), "Value="+pinned+"'", "CloudTrail")
		if now := worker.Get("host_key"); now != pinned {
			t.Errorf("%q is pinned, wanted %q", now, pinned)
		}
	}

	c.TagHostKey(t, worker, pinned)
	worker.Converged(config)
	providertest.Answer[*ec2.DeleteTagsOutput](t)(c.Client.EC2.DeleteTags(t.Context(), &ec2.DeleteTagsInput{
		Resources: []string{worker.Get("id").(string)}, Tags: []types.Tag{{Key: sdk.String(infraaws.TagHostKey)}},
	}))
	worker.Converged(config)
	if now := worker.Get("host_key"); now != pinned {
		t.Errorf("without a tag %q is pinned, wanted %q", now, pinned)
	}
}

// TestImportedHostKey: an import takes the host key in a tag only if the machine has printed its fingerprint on its
// console, or if the import id has the fingerprint.
func TestImportedHostKey(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	config := providertest.WorkerConfig(network)
	worker.Must(config)
	own, theirs := worker.Get("host_key").(string), providertest.PublicKey(t)
	id, imported := worker.Get("id").(string), c.Instance("k8s_machine")

	imported.Imports("demo/worker-0")
	imported.Converged(config)

	c.TagHostKey(t, worker, theirs)
	for _, name := range []string{"demo/worker-0", id} {
		providertest.Mention(t, imported.TryImport(name), fingerprint(t, theirs), "has printed "+fingerprint(t, own)+" on its console", "CloudTrail")
	}
	providertest.Mention(t, imported.TryImport("demo/worker-0#"+fingerprint(t, own)), fingerprint(t, theirs), "the import says "+fingerprint(t, own))
	c.TagHostKey(t, worker, own)

	c.Machines.ForgetConsole(id)
	providertest.Mention(t, imported.TryImport("demo/worker-0"), fingerprint(t, own), "has not printed it on its console", "reboot", id+"#SHA256:")
	providertest.Mention(t, imported.TryImport("demo/worker-0#"+fingerprint(t, theirs)), "the import says "+fingerprint(t, theirs))
	providertest.Mention(t, imported.TryImport("demo/worker-0#"+own), "is not the fingerprint of a host key", "ssh-keygen -l")
	imported = c.Instance("k8s_machine")
	imported.Imports("demo/worker-0#" + fingerprint(t, own))
	imported.Converged(config)
}

func fingerprint(t *testing.T, key string) string {
	t.Helper()
	k, _, _, _, err := ssh.ParseAuthorizedKey([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return ssh.FingerprintSHA256(k)
}
