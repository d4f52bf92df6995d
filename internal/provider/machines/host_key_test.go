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
	fingerprint := func(key string) string {
		k, _, _, _, err := ssh.ParseAuthorizedKey([]byte(key))
		if err != nil {
			t.Fatal(err)
		}
		return ssh.FingerprintSHA256(k)
	}
	theirs := providertest.PublicKey(t)
	for tag, mentioned := range map[string]string{theirs: fingerprint(theirs), "no key": `"no key"`} {
		c.TagHostKey(t, worker, tag)
		said := worker.Refreshed()
		providertest.Mention(t, said, "worker-0", worker.Get("id").(string), mentioned, fingerprint(pinned), "Value="+pinned+"'", "CloudTrail")
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
