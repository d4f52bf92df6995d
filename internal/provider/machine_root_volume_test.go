package provider

import (
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// rootVolume returns the root volume of a machine.
func (c cloud) rootVolume(t *testing.T, machine *instance) types.Volume {
	t.Helper()
	return c.volume(t, *c.found(t, machine).BlockDeviceMappings[0].Ebs.VolumeId)
}

// TestRootVolumePerformance: a machine's root volume has the type, the IOPS and the throughput that are
// configured, from the launch on, and gets others in place, with one call for all of them and the size. What
// somebody else changes is drift.
func TestRootVolumePerformance(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, worker := c.instance("k8s_network"), c.instance("k8s_machine")
	network.must(networkConfig())
	config := func(more values) values { return with(workerConfig(network), more) }
	worker.must(config(values{"root_volume_iops": 4000, "root_volume_throughput": 500}))
	worker.settled(config(values{"root_volume_iops": 4000, "root_volume_throughput": 500}))
	id := worker.get("id")
	has := func(typ types.VolumeType, gib, iops, throughput int32) {
		t.Helper()
		v := c.rootVolume(t, worker)
		got := int32(0)
		if v.Throughput != nil {
			got = *v.Throughput
		}
		if v.VolumeType != typ || *v.Size != gib || v.Iops == nil || *v.Iops != iops || got != throughput {
			t.Errorf("the volume is %s with %d GiB, %v IOPS and %d MiB/s, want %s with %d, %d and %d", v.VolumeType, *v.Size, *v.Iops, got, typ, gib, iops, throughput)
		}
	}
	has(types.VolumeTypeGp3, 20, 4000, 500)

	imported := c.instance("k8s_machine")
	imported.imports(id.(string))
	imported.settled(config(values{"root_volume_iops": 4000, "root_volume_throughput": 500}))

	modifications := func() (n int) {
		for _, call := range c.calls() {
			if call == "ModifyVolume" {
				n++
			}
		}
		return n
	}
	apply := func(config values, calls int) {
		t.Helper()
		ch, before := worker.plan(config), modifications()
		if len(ch.replace) > 0 {
			t.Fatalf("would replace the machine because of %v", ch.replace)
		}
		c.fatal(worker.apply(ch))
		worker.settled(config)
		if got := modifications() - before; got != calls || worker.get("id") != id {
			t.Errorf("%d calls of ModifyVolume, want %d", got, calls)
		}
	}
	apply(config(values{"root_volume_size": 40, "root_volume_iops": 6000}), 1)
	has(types.VolumeTypeGp3, 40, 6000, 125)

	// Without a configuration a gp3 volume has what EC2 gives it.
	if ch := worker.plan(config(values{"root_volume_size": 40})); !strings.Contains(worker.differences(ch), "root_volume_iops") {
		t.Errorf("the plan does not show that the IOPS fall back:\n%s", worker.differences(ch))
	}

	volume := c.rootVolume(t, worker)
	iops := int32(3000)
	time.Sleep(1600 * time.Millisecond) // the last modification ends
	answer[*ec2.ModifyVolumeOutput](t)(c.client.EC2.ModifyVolume(t.Context(), &ec2.ModifyVolumeInput{VolumeId: volume.VolumeId, Iops: &iops}))
	time.Sleep(1600 * time.Millisecond)
	worker.refresh()
	if ch := worker.plan(config(values{"root_volume_size": 40, "root_volume_iops": 6000})); !strings.Contains(worker.differences(ch), "root volume IOPS: found 3000, wanted 6000") {
		t.Errorf("a change is no drift:\n%s", worker.differences(ch))
	}
	apply(config(values{"root_volume_size": 40, "root_volume_iops": 6000}), 1)
	has(types.VolumeTypeGp3, 40, 6000, 125)

	for _, tt := range []struct {
		config         values
		argument, says string
	}{
		{values{"root_volume_type": "st1"}, "root_volume_type", "one of"},
		{values{"root_volume_iops": 100}, "root_volume_iops", "A gp3 volume has 3000 to 80000 IOPS"},
		{values{"root_volume_iops": 80000}, "root_volume_iops", "with 20 GiB, 10000"},
		{values{"root_volume_iops": 3000, "root_volume_throughput": 1000}, "root_volume_throughput", "set root_volume_iops to 4000"},
		{values{"root_volume_type": "gp2", "root_volume_throughput": 250}, "root_volume_throughput", "remove root_volume_throughput"},
		{values{"root_volume_type": "io2"}, "root_volume_iops", "needs root_volume_iops"},
	} {
		if ch := c.instance("k8s_machine").plan(config(tt.config)); !strings.Contains(ch.failure(), tt.says) || !at(ch, tt.argument) {
			t.Errorf("%v: %q, want %q at %s", tt.config, ch.failure(), tt.says, tt.argument)
		}
	}
	c.fatal(worker.apply(worker.plan(nil)))
	c.fatal(network.apply(network.plan(nil)))
	c.account.Empty()
}
