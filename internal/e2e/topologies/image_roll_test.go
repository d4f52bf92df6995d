package topologies_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// TestImageRoll replaces every machine of a cluster behind load balancers for a newer image, one with each apply,
// while clients write and read.
func TestImageRoll(t *testing.T) {
	inSoak(t)
	c := openPlain(t, "nlb", "nlb") // the newest image of Debian is published
	step := harness.Steps(t)
	step("apply", func(t *testing.T) {
		source, err := os.ReadFile(filepath.Join(suite.Root, "examples", "nlb", "main.tf"))
		if err != nil {
			t.Fatal(err)
		}
		const zones = "zone_count      = 3\n"
		main := strings.Replace(string(source), zones, zones+"  image_policy    = \"roll\"\n", 1)
		if err := c.WS.WriteFile("main.tf", main); err != nil {
			t.Fatal(err)
		}
		c.Apply(t)
		c.Learn(t)
	})
	step("second plan is empty", c.NoChanges)
	step("every machine gets a newer image", func(t *testing.T) {
		newest := strings.TrimSpace(harness.Must[string](t)(suite.Lab(t.Context(), "publish", "13")))
		order := append(harness.Numbered("controller", 3), harness.Numbered("worker", 2)...)
		result := recorded(t, c, func() {
			for n, name := range order {
				changes, text, err := c.WS.Plan(t.Context())
				if err != nil || !changes {
					t.Fatalf("changes %t, %v", changes, err)
				}
				harness.Says(t, text, name+" is replaced for a newer image", newest, "image_id", "forces replacement")
				if got := strings.Count(text, "must be replaced"); got != 1 {
					t.Fatalf("the plan replaces %d machines:\n%s", got, text)
				}
				out := c.Apply(t)
				if n == len(order)-1 && !strings.Contains(out, "It is the last one.") {
					t.Error("the last one is not called so")
				}
			}
		})
		t.Logf("figures: newer image on %d machines: %s", len(order), result)
		if !result.Whole() || result.Gap > movingGap {
			t.Errorf("acknowledged writes are lost, the history is not linearizable, or clients waited for more than %s: %s", movingGap, result)
		}
		c.NoChanges(t)
		c.LearnMachines(t)
		for _, name := range order {
			if got := strings.TrimSpace(c.Sh(t, name, imageID)); got != newest {
				t.Errorf("%s has %s, wanted %s", name, got, newest)
			}
		}
	})
	step("destroy leaves nothing", c.Destroy)
}

// imageID prints the id of the image from which the machine was launched.
const imageID = `curl -sf -H "X-aws-ec2-metadata-token: $(curl -sf -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token)" http://169.254.169.254/latest/meta-data/ami-id`
