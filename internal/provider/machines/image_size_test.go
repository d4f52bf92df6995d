package machines_test

import (
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestImageLargerThanVolume: an image whose root volume is larger than root_volume_size is refused. With the size that the error
// names, later plans are empty.
func TestImageLargerThanVolume(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t, func(c *cloud.Config) { c.Images[0].SizeGiB = 30 })
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	config := providertest.WorkerConfig(network)
	providertest.Mention(t, worker.Attempt(config), "root_volume_size", "20 GiB", account.ImageID+" needs 30: set root_volume_size to 30 or more")
	config["root_volume_size"] = 30
	worker.Must(config)
	worker.Converged(config)
}
