package machines_test

import (
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
)

// TestDataVolumePlans: a bad mount point is an error of the plan, and a machine whose data go elsewhere
// is replaced.
func TestDataVolumePlans(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, volume, controller := c.Instance("k8s_network"), c.Instance("k8s_volume"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	volume.Must(providertest.VolumeConfig(network))
	config := providertest.ControllerConfig(network, volume)
	at := func(point string) providertest.Values {
		return providertest.With(config, providertest.Values{"data_volume": providertest.Values{"id": volume.Get("id"), "mount_point": point}})
	}
	for point, want := range map[string]string{
		"var/lib/etcd": "not an absolute path", "/var/lib/etcd/": `Write "/var/lib/etcd/" as "/var/lib/etcd"`, "/var/lib/../etcd": "Write",
		"/": "would hide files of the system", "/etc": "would hide", "/usr/local/data": "would hide", "/var/lib": "would hide", "/var/lib/dpkg/x": "would hide", "/opt": "would hide",
		"/srv/a b": "has a character",
	} {
		if got := controller.Plan(at(point)).Failure(); !strings.Contains(got, want) || !strings.Contains(got, "data_volume") {
			t.Errorf("%s: %s", point, got)
		}
	}
	for _, point := range []string{"/srv", "/data", "/srv/etcd", "/var/lib/data"} {
		if got := controller.Plan(at(point)).Failure(); got != "" {
			t.Errorf("%s: %s", point, got)
		}
	}

	plain := providertest.With(config, providertest.Values{"data_volume": nil})
	controller.Must(plain)
	if ch := controller.Plan(config); len(ch.Replace) > 0 {
		t.Errorf("a volume for a machine that has none replaces it because of %v", ch.Replace)
	}
	controller.Must(config)
	controller.Converged(config)
	for what, other := range map[string]providertest.Values{
		"no volume": plain, "another mount point": at("/var/lib/data"), "another volume": providertest.With(config, providertest.Values{"data_volume": providertest.Values{"id": "vol-0123"}}),
		"a volume to be made": providertest.With(config, providertest.Values{"data_volume": providertest.Values{"id": providertest.Unknown}}),
	} {
		if ch := controller.Plan(other); len(ch.Replace) != 1 || !strings.Contains(ch.Replace[0], "data_volume") {
			t.Errorf("%s: replaces because of %v: %s", what, ch.Replace, ch.Failure())
		}
	}
	protected := providertest.With(config, providertest.Values{"deletion_protection": true})
	controller.Must(protected)
	if got := controller.Plan(providertest.With(protected, providertest.Values{"data_volume": nil})).Failure(); !strings.Contains(got, "protected from deletion") {
		t.Error(got)
	}
}

// TestDataVolumeType: a data volume needs a type that names devices after their volumes. The plan says so for a
// new machine, and for another type of one that has a volume.
func TestDataVolumeType(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, volume, controller := c.Instance("k8s_network"), c.Instance("k8s_volume"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	volume.Must(providertest.VolumeConfig(network))
	config := providertest.ControllerConfig(network, volume)
	old := providertest.With(config, providertest.Values{"instance_type": "t2.medium"})
	refused := func(what string, config providertest.Values) {
		t.Helper()
		if ch := controller.Plan(config); !strings.Contains(ch.Failure(), "No data volume on this type") || !at(ch, "instance_type") {
			t.Errorf("%s: %s", what, ch.Failure())
		}
	}
	refused("new", old)
	refused("with a volume to be made", providertest.With(old, providertest.Values{"data_volume": providertest.Values{"id": providertest.Unknown}}))
	plain := providertest.With(old, providertest.Values{"data_volume": nil})
	controller.Must(plain)
	controller.Converged(plain)
	refused("a volume for an old type", old)
	controller.Must(config)
	refused("an old type for a machine with a volume", old)
}

// TestDataVolumeOfStopped: a machine gets a volume only while it runs, or when it is started. Nobody
// could look at the mount point otherwise.
func TestDataVolumeOfStopped(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, volume, controller := c.Instance("k8s_network"), c.Instance("k8s_volume"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	volume.Must(providertest.VolumeConfig(network))
	config := providertest.ControllerConfig(network, volume)
	plain := providertest.With(config, providertest.Values{"data_volume": nil})
	controller.Must(plain)
	refused := func(what string, config providertest.Values) {
		t.Helper()
		if ch := controller.Plan(config); !strings.Contains(ch.Failure(), "A stopped machine cannot mount a volume") || !at(ch, "data_volume") {
			t.Errorf("%s: %s", what, ch.Failure())
		}
	}
	off := providertest.Values{"power_state": reference.Stopped}
	refused("stopped with it", providertest.With(config, off))
	refused("stopped with it, of a volume to be made", providertest.With(providertest.With(config, off), providertest.Values{"data_volume": providertest.Values{"id": providertest.Unknown}}))
	controller.Must(providertest.With(plain, off))
	refused("stopped before", providertest.With(config, off))
	network.Must(providertest.With(providertest.NetworkConfig(), providertest.Values{"paused": true}))
	paused := providertest.Values{"network": network.Get("ref")}
	refused("paused", providertest.With(config, paused))
	network.Must(providertest.NetworkConfig())
	controller.Must(config) // starts it
	controller.Converged(config)
	if c.Mounts(t, controller) == "" || c.FileSystem(t, volume.Get("id")) == "" {
		t.Errorf("mounts %q, file system %q", c.Mounts(t, controller), c.FileSystem(t, volume.Get("id")))
	}
	controller.Must(providertest.With(config, off)) // with its volume
	controller.Converged(providertest.With(config, off))
}

// TestVolumeInUse: a machine takes its volume neither from another running machine nor from another
// cluster, and waits for it while its predecessor ends.
func TestVolumeInUse(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, volume := c.Instance("k8s_network"), c.Instance("k8s_volume")
	network.Must(providertest.NetworkConfig())
	volume.Must(providertest.VolumeConfig(network))
	config := providertest.ControllerConfig(network, volume)
	first, second := c.Instance("k8s_machine"), c.Instance("k8s_machine")
	first.Must(config)
	other := providertest.With(config, providertest.Values{"name": "controller-1", "private_ip": "10.240.0.11"})
	second.Must(providertest.With(other, providertest.Values{"data_volume": nil}))
	said := providertest.Change{Errors: second.Apply(second.Plan(other))}
	if got := strings.Join(strings.Fields(said.Failure()), " "); !strings.Contains(got, "is attached to "+first.Get("id").(string)+", which is not being terminated") || !at(said, "data_volume") {
		t.Error(got)
	}
	providertest.Answer[*ec2.TerminateInstancesOutput](t)(c.Client.EC2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{first.Get("id").(string)}}))
	second.Must(other)
	second.Converged(other)
	if a := c.Volume(t, volume.Get("id")).Attachments; len(a) != 1 || *a[0].InstanceId != second.Get("id") {
		t.Errorf("attached as %+v", a)
	}

	providertest.Answer[*ec2.CreateTagsOutput](t)(c.Client.EC2.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{volume.Get("id").(string)},
		Tags: []types.Tag{{Key: sdk.String(infraaws.TagCluster), Value: sdk.String("other")}}}))
	c.Detach(t, volume.Get("id"))
	second.Refresh()
	said = providertest.Change{Errors: second.Apply(second.Plan(other))}
	if got := said.Failure(); !strings.Contains(got, "is no data volume of cluster demo") {
		t.Error(got)
	}
}

// TestVolumeInUseIsNotDeleted: a volume with a file system is not taken from its machine to delete
// it, unless the machine is being terminated. A volume that was never formatted is.
func TestVolumeInUseIsNotDeleted(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, volume, controller := c.Instance("k8s_network"), c.Instance("k8s_volume"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	volume.Must(providertest.VolumeConfig(network))
	config := providertest.ControllerConfig(network, volume)
	controller.Must(config)
	id, machine := volume.Get("id"), sdk.String(controller.Get("id").(string))
	refused := func(what string) {
		t.Helper()
		got := strings.Join(strings.Fields(volume.Dismiss().Failure()), " ")
		if !strings.Contains(got, *machine+" has it and is not being terminated: stop what uses it there, unmount and detach it, or destroy the machine") {
			t.Errorf("%s: %s", what, got)
		}
		if a := c.Volume(t, id).Attachments; len(a) != 1 || a[0].State != types.VolumeAttachmentStateAttached {
			t.Errorf("%s: attached as %+v", what, a)
		}
	}
	refused("running")
	controller.Must(providertest.With(config, providertest.Values{"power_state": reference.Stopped}))
	refused("stopped")

	fresh := c.Instance("k8s_volume")
	fresh.Must(providertest.With(providertest.VolumeConfig(network), providertest.Values{"name": "etcd-1"}))
	providertest.Answer[*ec2.AttachVolumeOutput](t)(c.Client.EC2.AttachVolume(t.Context(), &ec2.AttachVolumeInput{
		InstanceId: machine, VolumeId: sdk.String(fresh.Get("id").(string)), Device: sdk.String("/dev/sdp")}))
	c.Fatal(fresh.Dismiss().Errors)

	providertest.Answer[*ec2.TerminateInstancesOutput](t)(c.Client.EC2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{*machine}}))
	for _, i := range []*providertest.Instance{volume, controller, network} { // the first one waits for the end of the machine
		c.Fatal(i.Dismiss().Errors)
	}
	c.Account.Empty()
}
