package provider

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

func volumeConfig(network *instance) values {
	return values{"name": "etcd-0", "network": network.get("ref"), "size": 8}
}

// controllerConfig is a controller with the data volume.
func controllerConfig(network, volume *instance) values {
	return values{"name": "controller-0", "role": "controller", "network": network.get("ref"), "private_ip": "10.240.0.10",
		"data_volume": values{"id": volume.get("id")}}
}

// volume returns the volume as EC2 describes it.
func (c cloud) volume(t *testing.T, id any) types.Volume {
	t.Helper()
	out := answer[*ec2.DescribeVolumesOutput](t)(c.client.EC2.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{VolumeIds: []string{id.(string)}}))
	return out.Volumes[0]
}

func (c cloud) volumeTag(t *testing.T, id any, key string) string {
	t.Helper()
	for _, tag := range c.volume(t, id).Tags {
		if *tag.Key == key {
			return *tag.Value
		}
	}
	return ""
}

// detach detaches the volume as somebody else does it, and waits for the end of that.
func (c cloud) detach(t *testing.T, id any) {
	t.Helper()
	answer[*ec2.DetachVolumeOutput](t)(c.client.EC2.DetachVolume(t.Context(), &ec2.DetachVolumeInput{VolumeId: sdk.String(id.(string))}))
	for range 100 {
		if len(c.volume(t, id).Attachments) == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal("it is not detached")
}

// fileSystem returns the UUID of the file system on a volume, empty if there is none.
func (c cloud) fileSystem(t *testing.T, id any) string {
	t.Helper()
	out, _ := exec.CommandContext(t.Context(), "/usr/sbin/blkid", "-p", "-s", "UUID", "-o", "value", c.machines.Disk(id.(string))).Output()
	return strings.TrimSpace(string(out))
}

// mounts returns what is mounted on the machine.
func (c cloud) mounts(t *testing.T, machine *instance) string {
	t.Helper()
	root := c.machines.Root(machine.get("id").(string))
	raw, _ := os.ReadFile(filepath.Join(root, "mounts"))
	return strings.ReplaceAll(strings.TrimSpace(string(raw)), root, "")
}

// TestVolume: a volume is encrypted, changed in place, imported, and deleted, and what somebody else
// does to it is drift.
func TestVolume(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, volume := c.instance("k8s_network"), c.instance("k8s_volume")
	network.must(networkConfig())
	config := func(more values) values { return with(volumeConfig(network), more) }
	volume.must(config(nil))
	volume.settled(config(nil))
	id := volume.get("id")
	if v := c.volume(t, id); !*v.Encrypted || *v.Size != 8 || v.VolumeType != types.VolumeTypeGp3 || *v.Iops != 3000 || *v.Throughput != 125 {
		t.Errorf("made %+v", v)
	}
	if got := c.volumeTag(t, id, infraaws.TagClaim); got == "" || got != volume.get("claim") {
		t.Errorf("claim %q", got)
	}

	imported := c.instance("k8s_volume")
	imported.imports("demo/" + id.(string))
	imported.settled(config(nil))
	if got := c.instance("k8s_volume").tryImport("other/" + id.(string)); !strings.Contains(got, "is volume etcd-0 of cluster demo, not of cluster other") {
		t.Error(got)
	}

	ch := volume.plan(config(values{"size": 20, "iops": 4000, "throughput": 250, "tags": values{"room": "12"}}))
	if len(ch.replace) > 0 {
		t.Fatalf("would replace it because of %v", ch.replace)
	}
	before := len(c.calls())
	c.fatal(volume.apply(ch))
	volume.settled(config(values{"size": 20, "iops": 4000, "throughput": 250, "tags": values{"room": "12"}}))
	if n := strings.Count(strings.Join(c.calls()[before:], " "), "ModifyVolume"); n != 1 {
		t.Errorf("%d modifications, and EC2 takes four in 24 hours", n)
	}
	if v := c.volume(t, id); *v.Size != 20 || *v.Iops != 4000 || *v.Throughput != 250 || volume.get("id") != id {
		t.Errorf("changed to %+v", v)
	}

	ch = volume.plan(config(values{"size": 10}))
	if got := ch.failure(); !strings.Contains(got, "Volume etcd-0 has 20 GiB: set size to 20") || !at(ch, "size") {
		t.Error(got)
	}

	time.Sleep(1600 * time.Millisecond) // the last modification ends
	answer[*ec2.ModifyVolumeOutput](t)(c.client.EC2.ModifyVolume(t.Context(), &ec2.ModifyVolumeInput{VolumeId: sdk.String(id.(string)), VolumeType: types.VolumeTypeGp2}))
	answer[*ec2.DeleteTagsOutput](t)(c.client.EC2.DeleteTags(t.Context(), &ec2.DeleteTagsInput{Resources: []string{id.(string)}, Tags: []types.Tag{{Key: sdk.String("team")}}}))
	time.Sleep(1600 * time.Millisecond)
	volume.refresh()
	last := config(values{"size": 20, "iops": 4000, "throughput": 250})
	ch = volume.plan(last)
	if got := volume.differences(ch); !strings.Contains(got, "type: found gp2, wanted gp3; ") || !strings.Contains(got, `tag team: missing, wanted "lab"`) {
		t.Errorf("the plan shows\n%s", got)
	}
	c.fatal(volume.apply(ch))
	volume.settled(last)
	if v := c.volume(t, id); v.VolumeType != types.VolumeTypeGp3 || *v.Iops != 4000 || *v.Throughput != 250 {
		t.Errorf("repaired to %+v", v)
	}

	answer[*ec2.DeleteVolumeOutput](t)(c.client.EC2.DeleteVolume(t.Context(), &ec2.DeleteVolumeInput{VolumeId: sdk.String(id.(string))}))
	if seen := volume.look(); len(seen.warnings) != 1 || !strings.Contains(seen.warnings[0].Detail, "which is empty") || !volume.state.IsNull() {
		t.Errorf("%v", seen.warnings)
	}
	volume.must(config(nil))
	c.fatal(volume.apply(volume.plan(nil)))
	c.fatal(network.apply(network.plan(nil)))
	c.account.Empty()
}

// TestVolumeEnlargedOutside: the size that somebody else has given the volume is shown, and kept. It is
// no error, with which nothing could be planned or destroyed until the configuration has it.
func TestVolumeEnlargedOutside(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, volume := c.instance("k8s_network"), c.instance("k8s_volume")
	network.must(networkConfig())
	volume.must(volumeConfig(network))
	answer[*ec2.ModifyVolumeOutput](t)(c.client.EC2.ModifyVolume(t.Context(), &ec2.ModifyVolumeInput{VolumeId: sdk.String(volume.get("id").(string)), Size: sdk.Int32(20)}))
	time.Sleep(1600 * time.Millisecond)
	volume.settled(volumeConfig(network))
	warned := func(config values) {
		t.Helper()
		ch := volume.plan(config)
		if len(ch.warnings) != 1 || !strings.Contains(ch.warnings[0].Detail, "enlarged volume etcd-0 to 20 GiB, and a volume cannot shrink: set size to 20") {
			t.Errorf("warned %v: %s", ch.warnings, ch.failure())
		}
		c.fatal(volume.apply(ch))
	}
	warned(volumeConfig(network))
	warned(with(volumeConfig(network), values{"tags": values{"room": "12"}}))
	volume.must(with(volumeConfig(network), values{"size": 20}))
	if got := volume.plan(volumeConfig(network)).failure(); !strings.Contains(got, "Volume etcd-0 has 20 GiB: set size to 20") {
		t.Errorf("a smaller size in the configuration: %s", got)
	}
	for _, i := range []*instance{volume, network} {
		c.fatal(i.dismiss().errors)
	}
	c.account.Empty()
}

// TestUnusableVolume: what EC2 would refuse is an error of the plan, on its attribute.
func TestUnusableVolume(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, volume := c.instance("k8s_network"), c.instance("k8s_volume")
	network.must(networkConfig())
	for _, tt := range []struct {
		more      values
		attribute string
		want      string
	}{
		{values{"size": 70000}, "size", "must be between 1 and 65536"},
		{values{"size": 0}, "size", "must be between 1 and 65536"},
		{values{"size": 1<<32 + 8}, "size", "must be between 1 and 65536"},
		{values{"type": "gp2", "size": 17000}, "size", "A gp2 volume has 1 to 16384 GiB"},
		{values{"iops": 0}, "iops", "must be between 1 and 256000"},
		{values{"iops": 1<<32 + 3000}, "iops", "must be between 1 and 256000"},
		{values{"throughput": 0}, "throughput", "must be between 1 and 2000"},
		{values{"throughput": 1<<32 + 125}, "throughput", "must be between 1 and 2000"},
		{values{"iops": 100}, "iops", "A gp3 volume has 3000 to 80000 IOPS"},
		{values{"iops": 5000}, "iops", "with 8 GiB, 4000"},
		{values{"iops": 3000, "throughput": 1000}, "throughput", "set iops to 4000"},
		{values{"type": "gp2", "iops": 3000}, "iops", "follow from its size"},
		{values{"type": "gp2", "throughput": 125}, "throughput", "Only a gp3 volume"},
		{values{"type": "io2"}, "iops", "needs iops"},
		{values{"type": "st1"}, "type", "must be one of"},
		{values{"subnet_id": "subnet-0123"}, "subnet_id", "none of the network's subnets"},
	} {
		ch := volume.plan(with(volumeConfig(network), tt.more))
		if got := ch.failure(); !strings.Contains(got, tt.want) || !at(ch, tt.attribute) {
			t.Errorf("%v: %s", tt.more, got)
		}
	}
}

// TestDataVolume: a machine gets its volume, formatted once, and another machine that takes its place
// finds the data. What somebody else does to it is drift, which an apply repairs.
func TestDataVolume(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, volume, controller := c.instance("k8s_network"), c.instance("k8s_volume"), c.instance("k8s_machine")
	network.must(networkConfig())
	volume.must(volumeConfig(network))
	id := volume.get("id")
	config := controllerConfig(network, volume)
	controller.must(config)
	controller.settled(config)
	volume.settled(volumeConfig(network))
	uuid, disk := c.fileSystem(t, id), c.machines.Disk(id.(string))
	if uuid == "" || c.volumeTag(t, id, infraaws.TagFileSystem) != uuid || c.mounts(t, controller) != disk+" /var/lib/etcd" {
		t.Fatalf("file system %q, tag %q, mounts %q", uuid, c.volumeTag(t, id, infraaws.TagFileSystem), c.mounts(t, controller))
	}
	if a := c.volume(t, id).Attachments; len(a) != 1 || *a[0].DeleteOnTermination || *a[0].InstanceId != controller.get("id") {
		t.Errorf("attached as %+v", a)
	}

	before, ch := len(c.calls()), controller.plan(with(config, values{"tags": values{"owner": "ops"}}))
	c.fatal(controller.apply(ch))
	if calls := c.calls()[before:]; of(calls, "CreateTags") == 0 || of(calls, "ssh") > 0 {
		t.Errorf("a change of tags alone asked for %q", calls)
	}
	controller.must(config)

	imported := c.instance("k8s_machine")
	imported.imports(controller.get("id").(string))
	imported.settled(config)

	drifts := func(what string, damage func(root string), wants ...string) {
		t.Helper()
		damage(c.machines.Root(controller.get("id").(string)))
		controller.refresh()
		ch := controller.plan(config)
		for _, want := range wants {
			if got := controller.differences(ch); !strings.Contains(got, want) {
				t.Errorf("%s: the plan shows\n%s\nwithout %q", what, got, want)
			}
		}
		if len(ch.replace) > 0 {
			t.Fatalf("%s: would replace the machine because of %v", what, ch.replace)
		}
		c.fatal(controller.apply(ch))
		controller.settled(config)
		if c.fileSystem(t, id) != uuid || c.mounts(t, controller) != disk+" /var/lib/etcd" {
			t.Errorf("%s: file system %q, mounts %q", what, c.fileSystem(t, id), c.mounts(t, controller))
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
		answer[*ec2.DeleteTagsOutput](t)(c.client.EC2.DeleteTags(t.Context(), &ec2.DeleteTagsInput{Resources: []string{id.(string)}, Tags: []types.Tag{{Key: sdk.String(infraaws.TagFileSystem)}}}))
	}, `tag k8s-from-scratch/file-system: missing, wanted "`+uuid)
	drifts("detached", func(string) { c.detach(t, id) }, "data volume "+id.(string)+": not attached")
	drifts("deleted with the instance", func(string) {
		answer[*ec2.ModifyInstanceAttributeOutput](t)(c.client.EC2.ModifyInstanceAttribute(t.Context(), &ec2.ModifyInstanceAttributeInput{
			InstanceId: sdk.String(controller.get("id").(string)), BlockDeviceMappings: []types.InstanceBlockDeviceMappingSpecification{
				{DeviceName: c.volume(t, id).Attachments[0].Device, Ebs: &types.EbsInstanceBlockDeviceSpecification{DeleteOnTermination: sdk.Bool(true)}}}}))
	}, "would be deleted when the instance ends")

	first := controller.get("id")
	c.fatal(controller.dismiss().errors)
	controller.must(config)
	controller.settled(config)
	if controller.get("id") == first || c.fileSystem(t, id) != uuid || c.mounts(t, controller) != disk+" /var/lib/etcd" {
		t.Errorf("machine %v, file system %q, mounts %q", controller.get("id"), c.fileSystem(t, id), c.mounts(t, controller))
	}

	// A volume that grows takes its file system along.
	volume.must(with(volumeConfig(network), values{"size": 20}))
	controller.settled(config)
	out, err := exec.CommandContext(t.Context(), "/usr/sbin/dumpe2fs", "-h", disk).Output()
	if want := "Block count:              163840\n"; err != nil || !strings.Contains(string(out), want) { // of 1024 bytes: 160 MiB stand for 20 GiB
		t.Errorf("%v: the file system has not grown: %s", err, out)
	}

	for _, i := range []*instance{controller, volume, network} {
		c.fatal(i.dismiss().errors)
	}
	c.account.Empty()
}

// TestForeignFileSystem: what is on a volume is never formatted over, and a tag and a disk that
// disagree are an error that says what to do.
func TestForeignFileSystem(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, volume := c.instance("k8s_network"), c.instance("k8s_volume")
	network.must(networkConfig())
	volume.must(volumeConfig(network))
	id := volume.get("id")
	plain := values{"name": "controller-0", "role": "controller", "network": network.get("ref"), "private_ip": "10.240.0.10"}
	controller := c.instance("k8s_machine")
	controller.must(plain)
	config := controllerConfig(network, volume)
	root := c.machines.Root(controller.get("id").(string))
	disk := c.machines.Disk(id.(string))
	run := func(name string, args ...string) {
		t.Helper()
		if out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", name, err, out)
		}
	}
	tag := func(uuid string) {
		t.Helper()
		answer[*ec2.CreateTagsOutput](t)(c.client.EC2.CreateTags(t.Context(), &ec2.CreateTagsInput{Resources: []string{id.(string)},
			Tags: []types.Tag{{Key: sdk.String(infraaws.TagFileSystem), Value: &uuid}}}))
	}
	refused := func(what string, wants ...string) {
		t.Helper()
		controller.refresh()
		before := c.fileSystem(t, id)
		said := change{errors: controller.apply(controller.plan(config))}
		for _, want := range wants {
			if !strings.Contains(strings.Join(strings.Fields(said.failure()), " "), want) {
				t.Errorf("%s: %s\nwithout %q", what, said.failure(), want)
			}
		}
		if now := c.fileSystem(t, id); now != before || c.mounts(t, controller) != "" {
			t.Errorf("%s: file system %q became %q, mounts %q", what, before, now, c.mounts(t, controller))
		}
	}
	const theirs = "11111111-2222-4333-8444-555555555555"

	tag(theirs)
	refused("a tag without a file system", "the tag of "+id.(string)+" says that it has the file system "+theirs+", and it has none", "correct the tag")
	answer[*ec2.DeleteTagsOutput](t)(c.client.EC2.DeleteTags(t.Context(), &ec2.DeleteTagsInput{Resources: []string{id.(string)}, Tags: []types.Tag{{Key: sdk.String(infraaws.TagFileSystem)}}}))
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

	// The tag says that it is theirs: it is used as it is.
	c.fatal(controller.apply(controller.plan(config)))
	controller.settled(config)
	if c.fileSystem(t, id) != theirs || c.mounts(t, controller) != disk+" /var/lib/etcd" {
		t.Errorf("file system %q, mounts %q", c.fileSystem(t, id), c.mounts(t, controller))
	}
}
