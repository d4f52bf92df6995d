package machines_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestVolume: a volume is encrypted, changed in place, imported, and deleted, and what somebody else
// does to it is drift.
func TestVolume(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, volume := c.Instance("k8s_network"), c.Instance("k8s_volume")
	network.Must(providertest.NetworkConfig())
	config := func(more providertest.Values) providertest.Values {
		return providertest.With(providertest.VolumeConfig(network), more)
	}
	volume.Must(config(nil))
	volume.Converged(config(nil))
	id := volume.Get("id")
	if v := c.Volume(t, id); !*v.Encrypted || *v.Size != 8 || v.VolumeType != types.VolumeTypeGp3 || *v.Iops != 3000 || *v.Throughput != 125 {
		t.Errorf("made %+v", v)
	}
	if got := c.VolumeTag(t, id, infraaws.TagClaim); got == "" || got != volume.Get("claim") {
		t.Errorf("claim %q", got)
	}

	imported := c.Instance("k8s_volume")
	imported.Imports("demo/" + id.(string))
	imported.Converged(config(nil))
	if got := c.Instance("k8s_volume").TryImport("other/" + id.(string)); !strings.Contains(got, "is volume etcd-0 of cluster demo, not of cluster other") {
		t.Error(got)
	}

	ch := volume.Plan(config(providertest.Values{"size": 20, "iops": 4000, "throughput": 250, "tags": providertest.Values{"room": "12"}}))
	if len(ch.Replace) > 0 {
		t.Fatalf("would replace it because of %v", ch.Replace)
	}
	before := len(c.Calls())
	c.Fatal(volume.Apply(ch))
	volume.Converged(config(providertest.Values{"size": 20, "iops": 4000, "throughput": 250, "tags": providertest.Values{"room": "12"}}))
	if n := strings.Count(strings.Join(c.Calls()[before:], " "), "ModifyVolume"); n != 1 {
		t.Errorf("%d modifications, and EC2 takes four in 24 hours", n)
	}
	if v := c.Volume(t, id); *v.Size != 20 || *v.Iops != 4000 || *v.Throughput != 250 || volume.Get("id") != id {
		t.Errorf("changed to %+v", v)
	}

	ch = volume.Plan(config(providertest.Values{"size": 10}))
	if got := ch.Failure(); !strings.Contains(got, "Volume etcd-0 has 20 GiB: set size to 20") || !at(ch, "size") {
		t.Error(got)
	}

	time.Sleep(1600 * time.Millisecond) // the last modification ends
	providertest.Answer[*ec2.ModifyVolumeOutput](t)(c.Client.EC2.ModifyVolume(t.Context(), &ec2.ModifyVolumeInput{VolumeId: sdk.String(id.(string)), VolumeType: types.VolumeTypeGp2}))
	providertest.Answer[*ec2.DeleteTagsOutput](t)(c.Client.EC2.DeleteTags(t.Context(), &ec2.DeleteTagsInput{Resources: []string{id.(string)}, Tags: []types.Tag{{Key: sdk.String("team")}}}))
	time.Sleep(1600 * time.Millisecond)
	volume.Refresh()
	last := config(providertest.Values{"size": 20, "iops": 4000, "throughput": 250})
	ch = volume.Plan(last)
	if got := volume.Differences(ch); !strings.Contains(got, "type: found gp2, wanted gp3\n") || !strings.Contains(got, `tag team: missing, wanted "lab"`) {
		t.Errorf("the plan shows\n%s", got)
	}
	c.Fatal(volume.Apply(ch))
	volume.Converged(last)
	if v := c.Volume(t, id); v.VolumeType != types.VolumeTypeGp3 || *v.Iops != 4000 || *v.Throughput != 250 {
		t.Errorf("repaired to %+v", v)
	}

	providertest.Answer[*ec2.DeleteVolumeOutput](t)(c.Client.EC2.DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: sdk.String(id.(string))}))
	if seen := volume.Look(); len(seen.Warnings) != 1 || !strings.Contains(seen.Warnings[0].Detail, "creates an empty volume") || !volume.State.IsNull() {
		t.Errorf("%v", seen.Warnings)
	}
	volume.Must(config(nil))
	c.Fatal(volume.Apply(volume.Plan(nil)))
	c.Fatal(network.Apply(network.Plan(nil)))
	c.Account.Empty()
}

// TestVolumeEnlargedOutside: a size that somebody else has given the volume is shown and kept. It
// is no error: otherwise nothing could be planned or destroyed until the configuration has that
// size.
func TestVolumeEnlargedOutside(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, volume := c.Instance("k8s_network"), c.Instance("k8s_volume")
	network.Must(providertest.NetworkConfig())
	volume.Must(providertest.VolumeConfig(network))
	providertest.Answer[*ec2.ModifyVolumeOutput](t)(c.Client.EC2.ModifyVolume(t.Context(), &ec2.ModifyVolumeInput{VolumeId: sdk.String(volume.Get("id").(string)), Size: sdk.Int32(20)}))
	time.Sleep(1600 * time.Millisecond)
	volume.Converged(providertest.VolumeConfig(network))
	warned := func(config providertest.Values) {
		t.Helper()
		ch := volume.Plan(config)
		if len(ch.Warnings) != 1 || !strings.Contains(ch.Warnings[0].Detail, "enlarged volume etcd-0 to 20 GiB, and a volume cannot shrink: set size to 20") {
			t.Errorf("warned %v: %s", ch.Warnings, ch.Failure())
		}
		c.Fatal(volume.Apply(ch))
	}
	warned(providertest.VolumeConfig(network))
	warned(providertest.With(providertest.VolumeConfig(network), providertest.Values{"tags": providertest.Values{"room": "12"}}))
	volume.Must(providertest.With(providertest.VolumeConfig(network), providertest.Values{"size": 20}))
	if got := volume.Plan(providertest.VolumeConfig(network)).Failure(); !strings.Contains(got, "Volume etcd-0 has 20 GiB: set size to 20") {
		t.Errorf("a smaller size in the configuration: %s", got)
	}
	for _, i := range []*providertest.Instance{volume, network} {
		c.Fatal(i.Dismiss().Errors)
	}
	c.Account.Empty()
}

// TestUnusableVolume: what EC2 would refuse is an error of the plan, on its attribute.
func TestUnusableVolume(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, volume := c.Instance("k8s_network"), c.Instance("k8s_volume")
	network.Must(providertest.NetworkConfig())
	for _, tt := range []struct {
		more      providertest.Values
		attribute string
		want      string
	}{
		{providertest.Values{"size": 70000}, "size", "must be between 1 and 65536"},
		{providertest.Values{"size": 0}, "size", "must be between 1 and 65536"},
		{providertest.Values{"size": 1<<32 + 8}, "size", "must be between 1 and 65536"},
		{providertest.Values{"type": "gp2", "size": 17000}, "size", "A gp2 volume has 1 to 16384 GiB"},
		{providertest.Values{"iops": 0}, "iops", "must be between 1 and 256000"},
		{providertest.Values{"iops": 1<<32 + 3000}, "iops", "must be between 1 and 256000"},
		{providertest.Values{"throughput": 0}, "throughput", "must be between 1 and 2000"},
		{providertest.Values{"throughput": 1<<32 + 125}, "throughput", "must be between 1 and 2000"},
		{providertest.Values{"iops": 100}, "iops", "A gp3 volume has 3000 to 80000 IOPS"},
		{providertest.Values{"iops": 5000}, "iops", "with 8 GiB, 4000"},
		{providertest.Values{"iops": 3000, "throughput": 1000}, "throughput", "set iops to 4000"},
		{providertest.Values{"type": "gp2", "iops": 3000}, "iops", "follow from its size"},
		{providertest.Values{"type": "gp2", "throughput": 125}, "throughput", "Only a gp3 volume"},
		{providertest.Values{"type": "io2"}, "iops", "needs iops"},
		{providertest.Values{"type": "st1"}, "type", "must be one of"},
		{providertest.Values{"subnet_id": "subnet-0123"}, "subnet_id", "none of the network's subnets"},
	} {
		ch := volume.Plan(providertest.With(providertest.VolumeConfig(network), tt.more))
		if got := ch.Failure(); !strings.Contains(got, tt.want) || !at(ch, tt.attribute) {
			t.Errorf("%v: %s", tt.more, got)
		}
	}
}

// TestDataVolume: a machine gets its volume, formatted once, and another machine that takes its place
// finds the data. What somebody else does to it is drift, which an apply repairs.
func TestDataVolume(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, volume, controller := c.Instance("k8s_network"), c.Instance("k8s_volume"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	volume.Must(providertest.VolumeConfig(network))
	id := volume.Get("id")
	config := providertest.ControllerConfig(network, volume)
	controller.Must(config)
	controller.Converged(config)
	volume.Converged(providertest.VolumeConfig(network))
	uuid, disk := c.FileSystem(t, id), c.Machines.Disk(id.(string))
	if uuid == "" || c.VolumeTag(t, id, infraaws.TagFileSystem) != uuid || c.Mounts(t, controller) != disk+" /var/lib/etcd" {
		t.Fatalf("file system %q, tag %q, mounts %q", uuid, c.VolumeTag(t, id, infraaws.TagFileSystem), c.Mounts(t, controller))
	}
	if a := c.Volume(t, id).Attachments; len(a) != 1 || *a[0].DeleteOnTermination || *a[0].InstanceId != controller.Get("id") {
		t.Errorf("attached as %+v", a)
	}

	before, ch := len(c.Calls()), controller.Plan(providertest.With(config, providertest.Values{"tags": providertest.Values{"owner": "ops"}}))
	c.Fatal(controller.Apply(ch))
	if calls := c.Calls()[before:]; of(calls, "CreateTags") == 0 || of(calls, "ssh") > 0 {
		t.Errorf("a change of tags alone asked for %q", calls)
	}
	controller.Must(config)

	imported := c.Instance("k8s_machine")
	imported.Imports(controller.Get("id").(string))
	imported.Converged(config)

	drifts := func(what string, damage func(root string), wants ...string) {
		t.Helper()
		damage(c.Machines.Root(controller.Get("id").(string)))
		controller.Refresh()
		ch := controller.Plan(config)
		for _, want := range wants {
			if got := controller.Differences(ch); !strings.Contains(got, want) {
				t.Errorf("%s: the plan shows\n%s\nwithout %q", what, got, want)
			}
		}
		if len(ch.Replace) > 0 {
			t.Fatalf("%s: would replace the machine because of %v", what, ch.Replace)
		}
		c.Fatal(controller.Apply(ch))
		controller.Converged(config)
		if c.FileSystem(t, id) != uuid || c.Mounts(t, controller) != disk+" /var/lib/etcd" {
			t.Errorf("%s: file system %q, mounts %q", what, c.FileSystem(t, id), c.Mounts(t, controller))
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	remove := func(name string) {
		t.Helper()
		if err := os.Remove(name); err != nil {
			t.Fatal(err)
		}
	}
	const unit = "/etc/systemd/system/k8s-data-volume.service"
	drifts("unmounted", func(root string) { write(root+"/mounts", "") }, "mount point /var/lib/etcd: the data volume is not mounted, wanted "+id.(string))
	drifts("mounted elsewhere", func(root string) { write(root+"/mounts", disk+" "+root+"/mnt/x\n") },
		"mount point /var/lib/etcd: the data volume is not mounted", "mount point /mnt/x: has the data volume too, which belongs to /var/lib/etcd")
	drifts("unit edited", func(root string) { write(root+unit, "[Unit]\n") }, "file "+unit+": content differs")
	drifts("unit removed", func(root string) { remove(root + unit) }, "file "+unit+": missing")
	drifts("program removed", func(root string) { remove(root + "/usr/local/sbin/mount-data-volume") }, "file /usr/local/sbin/mount-data-volume: missing")
	drifts("unit disabled", func(root string) { remove(root + "/etc/systemd/system/etcd.service.requires/k8s-data-volume.service") },
		"data volume "+id.(string)+": etcd.service would start without it")
	drifts("tag removed", func(string) {
		providertest.Answer[*ec2.DeleteTagsOutput](t)(c.Client.EC2.DeleteTags(t.Context(), &ec2.DeleteTagsInput{Resources: []string{id.(string)}, Tags: []types.Tag{{Key: sdk.String(infraaws.TagFileSystem)}}}))
	}, `tag k8s-from-scratch/file-system: missing, wanted "`+uuid)
	drifts("detached", func(string) { c.Detach(t, id) }, "data volume "+id.(string)+": not attached")
	drifts("deleted with the instance", func(string) {
		providertest.Answer[*ec2.ModifyInstanceAttributeOutput](t)(c.Client.EC2.ModifyInstanceAttribute(t.Context(), &ec2.ModifyInstanceAttributeInput{
			InstanceId: sdk.String(controller.Get("id").(string)), BlockDeviceMappings: []types.InstanceBlockDeviceMappingSpecification{
				{DeviceName: c.Volume(t, id).Attachments[0].Device, Ebs: &types.EbsInstanceBlockDeviceSpecification{DeleteOnTermination: sdk.Bool(true)}}}}))
	}, "would be deleted when the instance ends")

	first := controller.Get("id")
	c.Fatal(controller.Dismiss().Errors)
	controller.Must(config)
	controller.Converged(config)
	if controller.Get("id") == first || c.FileSystem(t, id) != uuid || c.Mounts(t, controller) != disk+" /var/lib/etcd" {
		t.Errorf("machine %v, file system %q, mounts %q", controller.Get("id"), c.FileSystem(t, id), c.Mounts(t, controller))
	}

	// The file system grows with its volume.
	volume.Must(providertest.With(providertest.VolumeConfig(network), providertest.Values{"size": 20}))
	controller.Converged(config)
	out, err := exec.CommandContext(t.Context(), "/usr/sbin/dumpe2fs", "-h", disk).Output()
	if want := "Block count:              163840\n"; err != nil || !strings.Contains(string(out), want) { // of 1024 bytes: 160 MiB stand for 20 GiB
		t.Errorf("%v: the file system has not grown: %s", err, out)
	}

	for _, i := range []*providertest.Instance{controller, volume, network} {
		c.Fatal(i.Dismiss().Errors)
	}
	c.Account.Empty()
}

// TestForeignFileSystem: data on a volume are never formatted over. If the tag and the disk
// disagree, the error says what to do.
func TestForeignFileSystem(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, volume := c.Instance("k8s_network"), c.Instance("k8s_volume")
	network.Must(providertest.NetworkConfig())
	volume.Must(providertest.VolumeConfig(network))
	id := volume.Get("id")
	plain := providertest.Values{"name": "controller-0", "role": "controller", "network": network.Get("ref"), "private_ip": "10.240.0.10"}
	controller := c.Instance("k8s_machine")
	controller.Must(plain)
	config := providertest.ControllerConfig(network, volume)
	root := c.Machines.Root(controller.Get("id").(string))
	disk := c.Machines.Disk(id.(string))
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
	}
	tag := func(uuid string) {
		t.Helper()
		providertest.Answer[*ec2.CreateTagsOutput](t)(c.Client.EC2.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{id.(string)},
			Tags: []types.Tag{{Key: sdk.String(infraaws.TagFileSystem), Value: &uuid}}}))
	}
	refused := func(what string, wants ...string) {
		t.Helper()
		controller.Refresh()
		before := c.FileSystem(t, id)
		said := providertest.Change{Errors: controller.Apply(controller.Plan(config))}
		for _, want := range wants {
			if !strings.Contains(strings.Join(strings.Fields(said.Failure()), " "), want) {
				t.Errorf("%s: %s\nwithout %q", what, said.Failure(), want)
			}
		}
		if now := c.FileSystem(t, id); now != before || c.Mounts(t, controller) != "" {
			t.Errorf("%s: file system %q became %q, mounts %q", what, before, now, c.Mounts(t, controller))
		}
	}
	const theirs = "11111111-2222-4333-8444-555555555555"

	tag(theirs)
	refused("a tag without a file system", "the tag of "+id.(string)+" says that it has the file system "+theirs+", and it has none", "correct the tag")
	providertest.Answer[*ec2.DeleteTagsOutput](t)(c.Client.EC2.DeleteTags(t.Context(), &ec2.DeleteTagsInput{Resources: []string{id.(string)}, Tags: []types.Tag{{Key: sdk.String(infraaws.TagFileSystem)}}}))
	run("/usr/sbin/mkfs.ext4", "-q", "-F", "-U", theirs, disk)
	refused("a file system without a tag", "has an ext4 with UUID "+theirs+" that was not made here", "the guide on data volumes says when an ext4 file system may be used", "wipefs -a")
	run("/usr/sbin/wipefs", "-aq", disk)
	run("sh", "-c", "echo 'label: gpt' | /usr/sbin/sfdisk -q "+disk)
	refused("a partition table", "has a partition table gpt")
	if err := os.Truncate(disk, 0); err != nil {
		t.Fatal(err)
	}
	run("truncate", "-s", "64M", disk)
	run("/usr/sbin/mkswap", "-q", disk)
	refused("swap", "has a swap")
	run("/usr/sbin/mkfs.ext4", "-q", "-F", "-U", theirs, disk)
	tag(theirs)
	if err := os.MkdirAll(root+"/var/lib/etcd/member", 0o755); err != nil {
		t.Fatal(err)
	}
	refused("data at the mount point", "/var/lib/etcd has data on the root disk", "the volume is attached and not mounted", "leaves its cluster and joins anew", "replace the machine (-replace)")
	if err := os.RemoveAll(root + "/var/lib/etcd/member"); err != nil {
		t.Fatal(err)
	}

	// With the tag, the file system counts as the user's choice and is used as it is.
	c.Fatal(controller.Apply(controller.Plan(config)))
	controller.Converged(config)
	if c.FileSystem(t, id) != theirs || c.Mounts(t, controller) != disk+" /var/lib/etcd" {
		t.Errorf("file system %q, mounts %q", c.FileSystem(t, id), c.Mounts(t, controller))
	}
}
