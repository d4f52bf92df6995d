package instances_test

import (
	"strconv"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// dataDisk prints the size of the file system that is mounted at the data of etcd, and its device and
// type. It fails if none is.
const dataDisk = "findmnt -rnbo SIZE,SOURCE,FSTYPE --mountpoint /var/lib/etcd"

// testDataVolumes checks that the data of etcd are on their volumes, that etcd does not start without
// them, and that damage to the mount is drift that an apply repairs.
func (w *world) testDataVolumes(t *testing.T) {
	for _, c := range []string{"controller-0", "controller-1", "controller-2"} {
		if got := w.Sh(t, c, dataDisk+"; ls /var/lib/etcd"); !strings.Contains(got, "/dev/nvme") || !strings.Contains(got, " ext4") || !strings.Contains(got, "member") {
			t.Errorf("%s has %q at /var/lib/etcd", c, got)
		}
	}
	was := w.Units(t)

	const unit = "/etc/systemd/system/k8s-data-volume.service"
	w.Sh(t, "controller-1", "rm /etc/systemd/system/etcd.service.requires/k8s-data-volume.service; sed -i s/etcd.service// "+unit)
	_, plan, err := w.WS.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if flat := strings.Join(strings.Fields(plan), " "); !strings.Contains(flat, "file "+unit+": content differs") || !strings.Contains(flat, "etcd.service would start without it") ||
		!strings.Contains(flat, "0 to add, 1 to change, 0 to destroy") {
		t.Errorf("the plan does not show what was done to the mount of controller-1 alone:\n%s", plan)
	}
	w.apply(t)
	w.NoChanges(t)
	w.same(t, was)

	// etcd does not start on the empty directory below.
	w.Sh(t, "controller-1", "systemctl stop etcd && umount /var/lib/etcd && mv /usr/local/sbin/mount-data-volume /root/")
	if got := w.Sh(t, "controller-1", "systemctl start etcd 2>&1; systemctl is-active etcd; ls -A /var/lib/etcd"); !strings.Contains(got, "dependency") || !strings.Contains(got, "inactive") || strings.Contains(got, "member") {
		t.Errorf("etcd was started without its volume: %s", got)
	}
	_, plan, err = w.WS.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(plan, "mount point /var/lib/etcd: the data volume is not mounted") {
		t.Errorf("the plan does not show that the volume is not mounted:\n%s", plan)
	}
	w.apply(t)
	w.NoChanges(t)
	w.healthy(t)
}

// testGrow enlarges a data volume in use. The lab's machines lack the capability with which a mounted
// file system grows (CAP_SYS_RESOURCE): it grows when it is mounted again.
func (w *world) testGrow(t *testing.T) {
	w.edit(t, "size    = var.data_volume_size", "size    = count.index == 1 ? 12 : var.data_volume_size", 1)
	_, err := w.WS.Apply(t.Context())
	harness.Refused(t, err, "grows when it is mounted again")
	_, plan, err := w.WS.Plan(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(plan, "file system of the data volume: does not fill its volume yet") {
		t.Errorf("the plan does not show that the file system is too small:\n%s", plan)
	}
	w.Sh(t, "controller-1", "systemctl stop etcd && umount /var/lib/etcd && systemctl start etcd")
	w.NoChanges(t)
	out, err := w.api.DescribeVolumes(t.Context(), &ec2.DescribeVolumesInput{Filters: []types.Filter{
		{Name: sdk.String("tag:k8s-from-scratch/kind"), Values: []string{"volume"}}, {Name: sdk.String("size"), Values: []string{"12"}}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(out.Volumes) != 1 || !*out.Volumes[0].Encrypted {
		t.Errorf("volumes of 12 GiB: %+v", out.Volumes)
	}
	got := w.Sh(t, "controller-1", dataDisk)
	if size, err := strconv.ParseInt(strings.Fields(got)[0], 10, 64); err != nil || size < 11<<30 {
		t.Errorf("the file system has not grown: %s", got)
	}
	w.healthy(t)
}
