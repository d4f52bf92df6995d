package machines_test

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestRootVolumePerformance: a machine's root volume has the type, the IOPS and the throughput that are
// configured, from the launch on, and gets others in place, with one call for all of them and the size. What
// somebody else changes is drift.
func TestRootVolumePerformance(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	config := func(more providertest.Values) providertest.Values {
		return providertest.With(providertest.WorkerConfig(network), more)
	}
	worker.Must(config(providertest.Values{"root_volume_iops": 4000, "root_volume_throughput": 500}))
	worker.Converged(config(providertest.Values{"root_volume_iops": 4000, "root_volume_throughput": 500}))
	id := worker.Get("id")
	has := func(typ types.VolumeType, gib, iops, throughput int32) {
		t.Helper()
		v := c.RootVolume(t, worker)
		got := int32(0)
		if v.Throughput != nil {
			got = *v.Throughput
		}
		if v.VolumeType != typ || *v.Size != gib || v.Iops == nil || *v.Iops != iops || got != throughput {
			t.Errorf("the volume is %s with %d GiB, %v IOPS and %d MiB/s, want %s with %d, %d and %d", v.VolumeType, *v.Size, *v.Iops, got, typ, gib, iops, throughput)
		}
	}
	has(types.VolumeTypeGp3, 20, 4000, 500)

	imported := c.Instance("k8s_machine")
	imported.Imports(id.(string))
	imported.Converged(config(providertest.Values{"root_volume_iops": 4000, "root_volume_throughput": 500}))

	modifications := func() (n int) {
		for _, call := range c.Calls() {
			if call == "ModifyVolume" {
				n++
			}
		}
		return n
	}
	apply := func(config providertest.Values, calls int) {
		t.Helper()
		ch, before := worker.Plan(config), modifications()
		if len(ch.Replace) > 0 {
			t.Fatalf("would replace the machine because of %v", ch.Replace)
		}
		c.Fatal(worker.Apply(ch))
		worker.Converged(config)
		if got := modifications() - before; got != calls || worker.Get("id") != id {
			t.Errorf("%d calls of ModifyVolume, want %d", got, calls)
		}
	}
	apply(config(providertest.Values{"root_volume_size": 40, "root_volume_iops": 6000}), 1)
	has(types.VolumeTypeGp3, 40, 6000, 125)

	// Without a configuration a gp3 volume has what EC2 gives it.
	if ch := worker.Plan(config(providertest.Values{"root_volume_size": 40})); !strings.Contains(worker.Differences(ch), "root_volume_iops") {
		t.Errorf("the plan does not show that the IOPS fall back:\n%s", worker.Differences(ch))
	}

	volume := c.RootVolume(t, worker)
	iops := int32(3000)
	time.Sleep(1600 * time.Millisecond) // the last modification ends
	providertest.Answer[*ec2.ModifyVolumeOutput](t)(c.Client.EC2.ModifyVolume(t.Context(), &ec2.ModifyVolumeInput{VolumeId: volume.VolumeId, Iops: &iops}))
	time.Sleep(1600 * time.Millisecond)
	worker.Refresh()
	if ch := worker.Plan(config(providertest.Values{"root_volume_size": 40, "root_volume_iops": 6000})); !strings.Contains(worker.Differences(ch), "root volume IOPS: found 3000, wanted 6000") {
		t.Errorf("a change is no drift:\n%s", worker.Differences(ch))
	}
	apply(config(providertest.Values{"root_volume_size": 40, "root_volume_iops": 6000}), 1)
	has(types.VolumeTypeGp3, 40, 6000, 125)

	for _, tt := range []struct {
		config         providertest.Values
		argument, says string
	}{
		{providertest.Values{"root_volume_type": "st1"}, "root_volume_type", "one of"},
		{providertest.Values{"root_volume_iops": 100}, "root_volume_iops", "A gp3 volume has 3000 to 80000 IOPS"},
		{providertest.Values{"root_volume_iops": 80000}, "root_volume_iops", "with 20 GiB, 10000"},
		{providertest.Values{"root_volume_iops": 3000, "root_volume_throughput": 1000}, "root_volume_throughput", "set root_volume_iops to 4000"},
		{providertest.Values{"root_volume_type": "gp2", "root_volume_throughput": 250}, "root_volume_throughput", "remove root_volume_throughput"},
		{providertest.Values{"root_volume_type": "io2"}, "root_volume_iops", "needs root_volume_iops"},
	} {
		if ch := c.Instance("k8s_machine").Plan(config(tt.config)); !strings.Contains(ch.Failure(), tt.says) || !at(ch, tt.argument) {
			t.Errorf("%v: %q, want %q at %s", tt.config, ch.Failure(), tt.says, tt.argument)
		}
	}
	c.Fatal(worker.Apply(worker.Plan(nil)))
	c.Fatal(network.Apply(network.Plan(nil)))
	c.Account.Empty()
}
