package provider

import (
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// TestDataVolumePlans: a bad mount point is an error of the plan, and a machine whose data go elsewhere
// is replaced.
func TestDataVolumePlans(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, volume, controller := c.instance("k8s_network"), c.instance("k8s_volume"), c.instance("k8s_machine")
	network.must(networkConfig())
	volume.must(volumeConfig(network))
	config := controllerConfig(network, volume)
	at := func(point string) values {
		return with(config, values{"data_volume": values{"id": volume.get("id"), "mount_point": point}})
	}
	for point, want := range map[string]string{
		"var/lib/etcd": "not an absolute path", "/var/lib/etcd/": `Write "/var/lib/etcd/" as "/var/lib/etcd"`, "/var/lib/../etcd": "Write",
		"/": "would hide files of the system", "/etc": "would hide", "/usr/local/data": "would hide", "/var/lib": "would hide", "/var/lib/dpkg/x": "would hide", "/opt": "would hide",
		"/srv/a b": "has a character",
	} {
		if got := controller.plan(at(point)).failure(); !strings.Contains(got, want) || !strings.Contains(got, "data_volume") {
			t.Errorf("%s: %s", point, got)
		}
	}
	for _, point := range []string{"/srv", "/data", "/srv/etcd", "/var/lib/data"} {
		if got := controller.plan(at(point)).failure(); got != "" {
			t.Errorf("%s: %s", point, got)
		}
	}

	plain := with(config, values{"data_volume": nil})
	controller.must(plain)
	if ch := controller.plan(config); len(ch.replace) > 0 {
		t.Errorf("a volume for a machine that has none replaces it because of %v", ch.replace)
	}
	controller.must(config)
	controller.settled(config)
	for what, other := range map[string]values{
		"no volume": plain, "another mount point": at("/var/lib/data"), "another volume": with(config, values{"data_volume": values{"id": "vol-0123"}}),
		"a volume to be made": with(config, values{"data_volume": values{"id": unknown}}),
	} {
		if ch := controller.plan(other); len(ch.replace) != 1 || !strings.Contains(ch.replace[0], "data_volume") {
			t.Errorf("%s: replaces because of %v: %s", what, ch.replace, ch.failure())
		}
	}
	protected := with(config, values{"deletion_protection": true})
	controller.must(protected)
	if got := controller.plan(with(protected, values{"data_volume": nil})).failure(); !strings.Contains(got, "protected from deletion") {
		t.Error(got)
	}
}

// TestDataVolumeOfStopped: a machine gets a volume only while it runs, or when it is started. Nobody
// could look at the mount point otherwise.
func TestDataVolumeOfStopped(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, volume, controller := c.instance("k8s_network"), c.instance("k8s_volume"), c.instance("k8s_machine")
	network.must(networkConfig())
	volume.must(volumeConfig(network))
	config := controllerConfig(network, volume)
	plain := with(config, values{"data_volume": nil})
	controller.must(plain)
	refused := func(what string, config values) {
		t.Helper()
		if ch := controller.plan(config); !strings.Contains(ch.failure(), "A stopped machine cannot mount a volume") || !at(ch, "data_volume") {
			t.Errorf("%s: %s", what, ch.failure())
		}
	}
	off := values{"power_state": reference.Stopped}
	refused("stopped with it", with(config, off))
	refused("stopped with it, of a volume to be made", with(with(config, off), values{"data_volume": values{"id": unknown}}))
	controller.must(with(plain, off))
	refused("stopped before", with(config, off))
	network.must(with(networkConfig(), values{"paused": true}))
	paused := values{"network": network.get("ref")}
	refused("paused", with(config, paused))
	network.must(networkConfig())
	controller.must(config) // starts it
	controller.settled(config)
	if c.mounts(t, controller) == "" || c.fileSystem(t, volume.get("id")) == "" {
		t.Errorf("mounts %q, file system %q", c.mounts(t, controller), c.fileSystem(t, volume.get("id")))
	}
	controller.must(with(config, off)) // with its volume
	controller.settled(with(config, off))
}

// TestVolumeInUse: a machine takes its volume from no other that runs, from no other cluster, and waits
// for it while its predecessor ends.
func TestVolumeInUse(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, volume := c.instance("k8s_network"), c.instance("k8s_volume")
	network.must(networkConfig())
	volume.must(volumeConfig(network))
	config := controllerConfig(network, volume)
	first, second := c.instance("k8s_machine"), c.instance("k8s_machine")
	first.must(config)
	other := with(config, values{"name": "controller-1", "private_ip": "10.240.0.11"})
	second.must(with(other, values{"data_volume": nil}))
	said := change{errors: second.apply(second.plan(other))}
	if got := strings.Join(strings.Fields(said.failure()), " "); !strings.Contains(got, "is attached to "+first.get("id").(string)+", which is not being terminated") || !at(said, "data_volume") {
		t.Error(got)
	}
	answer[*ec2.TerminateInstancesOutput](t)(c.client.EC2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{first.get("id").(string)}}))
	second.must(other)
	second.settled(other)
	if a := c.volume(t, volume.get("id")).Attachments; len(a) != 1 || *a[0].InstanceId != second.get("id") {
		t.Errorf("attached as %+v", a)
	}

	answer[*ec2.CreateTagsOutput](t)(c.client.EC2.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{volume.get("id").(string)},
		Tags: []types.Tag{{Key: sdk.String(infraaws.TagCluster), Value: sdk.String("other")}}}))
	c.detach(t, volume.get("id"))
	second.refresh()
	said = change{errors: second.apply(second.plan(other))}
	if got := said.failure(); !strings.Contains(got, "is no data volume of cluster demo") {
		t.Error(got)
	}
}

// TestVolumeInUseIsNotDeleted: a volume with a file system is taken from no machine, so that it can be
// deleted, unless that machine is being terminated. One that was never formatted is.
func TestVolumeInUseIsNotDeleted(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, volume, controller := c.instance("k8s_network"), c.instance("k8s_volume"), c.instance("k8s_machine")
	network.must(networkConfig())
	volume.must(volumeConfig(network))
	config := controllerConfig(network, volume)
	controller.must(config)
	id, machine := volume.get("id"), sdk.String(controller.get("id").(string))
	refused := func(what string) {
		t.Helper()
		got := strings.Join(strings.Fields(volume.dismiss().failure()), " ")
		if !strings.Contains(got, *machine+" has it and is not being terminated: stop what uses it there, unmount and detach it, or destroy the machine") {
			t.Errorf("%s: %s", what, got)
		}
		if a := c.volume(t, id).Attachments; len(a) != 1 || a[0].State != types.VolumeAttachmentStateAttached {
			t.Errorf("%s: attached as %+v", what, a)
		}
	}
	refused("running")
	controller.must(with(config, values{"power_state": reference.Stopped}))
	refused("stopped")

	fresh := c.instance("k8s_volume")
	fresh.must(with(volumeConfig(network), values{"name": "etcd-1"}))
	answer[*ec2.AttachVolumeOutput](t)(c.client.EC2.AttachVolume(t.Context(), &ec2.AttachVolumeInput{
		InstanceId: machine, VolumeId: sdk.String(fresh.get("id").(string)), Device: sdk.String("/dev/sdp")}))
	c.fatal(fresh.dismiss().errors)

	answer[*ec2.TerminateInstancesOutput](t)(c.client.EC2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{*machine}}))
	for _, i := range []*instance{volume, controller, network} { // the first one waits for the end of the machine
		c.fatal(i.dismiss().errors)
	}
	c.account.Empty()
}
