package topologies_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// installed prints what apt and dpkg have installed since the machine's first boot; nothing on a machine that had everything.
const installed = `cat /var/log/apt/history.log /var/log/dpkg.log 2>/dev/null || :; ls -A /var/cache/k8s-from-scratch 2>/dev/null || :`

// TestImage makes an image, and a cluster whose machines are made of it: only the machine that became the image has downloaded
// anything. Another content rolls the workers, and the AMI that it replaces stays as long as it is in use. The first image is made in the
// default VPC, and the second one in the cluster's network.
func TestImage(t *testing.T) {
	inSoak(t)
	c := openPlain(t, "image", "image") // the image is based on Debian's
	step := harness.Steps(t)
	api := ec2.NewFromConfig(suite.AWS())
	images := func(t *testing.T) (ids []string) {
		t.Helper()
		out := harness.Must[*ec2.DescribeImagesOutput](t)(api.DescribeImages(t.Context(), &ec2.DescribeImagesInput{Owners: []string{"self"}}))
		for _, i := range out.Images {
			if strings.HasPrefix(*i.Name, "demo-node-") {
				ids = append(ids, *i.ImageId)
			}
		}
		return ids
	}
	served := func(t *testing.T) (counts map[string]int) {
		t.Helper()
		if err := suite.Control(t.Context(), "GET", "/_lab/mirror", nil, &counts); err != nil {
			t.Fatal(err)
		}
		return counts
	}
	before := served(t) // to the machines of other tests
	var first []string
	machines := append(harness.Numbered("worker", 2), "controller-0", "lb-0")
	var vpc *providertest.DefaultVPC // nil if there is none
	t.Cleanup(func() {
		if t.Failed() && vpc != nil {
			vpc.Delete(t)
		}
	})
	step("apply", func(t *testing.T) {
		vpc = providertest.NewDefaultVPC(t, api)
		override := fmt.Sprintf("resource \"k8s_image\" \"node\" {\n  cluster = var.cluster\n  network = null\n  security_group_ids = [%q]\n}\n", vpc.Group)
		if err := c.WS.WriteFile("image_override.tf", override); err != nil {
			t.Fatal(err)
		}
		c.Apply(t)
		c.Learn(t)
	})
	step("second plan is empty", c.NoChanges)
	step("machines have downloaded and installed nothing", func(t *testing.T) {
		if first = images(t); len(first) != 1 {
			t.Fatalf("images %v", first)
		}
		downloads := 0
		for file, n := range served(t) {
			if n -= before[file]; n > 1 {
				t.Errorf("%s was served %d times", file, n)
			}
			downloads += n
		}
		if downloads == 0 {
			t.Error("nobody has downloaded anything")
		}
		for _, name := range machines {
			if got := strings.TrimSpace(c.Sh(t, name, imageID)); got != first[0] {
				t.Errorf("%s has %s, wanted %s", name, got, first[0])
			}
			if got := c.Sh(t, name, installed); strings.TrimSpace(got) != "" {
				t.Errorf("%s has installed or downloaded:\n%s", name, got)
			}
		}
	})
	step("no two machines share what is each one's own", func(t *testing.T) {
		seen := map[string]string{}
		for _, name := range machines {
			for line := range strings.Lines(c.Sh(t, name, "cat /etc/machine-id; sha256sum /etc/ssh/ssh_host_*_key | cut -d' ' -f1; sha256sum </var/lib/cloud/data/instance-id")) {
				if other := seen[line]; other != "" {
					t.Errorf("%s and %s share %s", name, other, line)
				}
				seen[line] = name
			}
		}
	})
	step("a plan warns of an image of another version", func(t *testing.T) {
		const override = "image.auto.tfvars"
		if err := c.WS.WriteFile(override, fmt.Sprintf("image_kubernetes_version = %q\n", ownKubernetesVersion)); err != nil {
			t.Fatal(err)
		}
		_, text, err := c.WS.Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		harness.Says(t, text, "Check block assertion failed", fmt.Sprintf("The image has Kubernetes %s: each new machine downloads %s.", ownKubernetesVersion, harness.KubernetesVersion))
		if err := c.WS.WriteFile(override, ""); err != nil {
			t.Fatal(err)
		}
	})
	step("another content", func(t *testing.T) {
		for name, content := range map[string]string{"packages.auto.tfvars": `packages = ["rsync"]` + "\n", "image_override.tf": ""} {
			if err := c.WS.WriteFile(name, content); err != nil {
				t.Fatal(err)
			}
		}
		_, text, err := c.WS.Plan(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		harness.Says(t, text, "The AMI is in use", first[0], "demo-worker-0")
		out := c.Apply(t)
		harness.Says(t, out, "An AMI in use stays", first[0])
		if got := images(t); len(got) != 2 {
			t.Errorf("images %v", got)
		}
		for range 2 { // one worker with each apply
			c.Apply(t)
		}
		c.LearnMachines(t)
		for _, name := range harness.Numbered("worker", 2) {
			if got := strings.TrimSpace(c.Sh(t, name, imageID)); got == first[0] {
				t.Errorf("%s still has the first image", name)
			}
		}
		c.NoChanges(t)
	})
	step("destroy leaves nothing", func(t *testing.T) {
		vpc.Delete(t)
		vpc = nil
		c.Destroy(t)
		if got := images(t); len(got) != 0 {
			t.Errorf("images %v", got)
		}
	})
}
