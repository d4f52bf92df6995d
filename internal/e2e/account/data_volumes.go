package account

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// dataVolumeMark is in each script that concerns a data volume.
const dataVolumeMark = "nvme-Amazon_Elastic_Block_Store_vol"

// bytesPerGiB is the size of the file that stands for one GiB of a volume. Programs on the machine are
// told the size of the volume.
const bytesPerGiB = 8 << 20

// inRoot are the directories of a machine that scripts about data volumes use. They are below the
// machine's root directory here.
var inRoot = []string{"/dev/disk/", "/etc/systemd/system", "/run/k8s", "/usr/local/sbin", "/var/lib/etcd", "/var/lib/data", "/mnt/"}

// commands replace those that would do something to this computer. What they mount is in $ROOT/mounts:
// a line "DISK DIRECTORY" for each. File systems are made, found and checked by the real programs, on
// files.
var commands = map[string]string{
	"systemctl": `case $1 in
start) sh -c "$(sed -n 's/^ExecStart=//p' "$ROOT/etc/systemd/system/$2")" >/dev/null ;;
esac`,
	"journalctl": `exit 1`,
	"mount":      `shift 2; mkdir -p "$2" && echo "$1 $2" >>"$ROOT/mounts"`,
	"umount":     `grep -v " $1\$" "$ROOT/mounts" >"$ROOT/mounts.new"; mv "$ROOT/mounts.new" "$ROOT/mounts"`,
	"findmnt": `touch "$ROOT/mounts"
case $3,$2 in
--mountpoint,*) sed -n "s|^\([^ ]*\) $4\$|\1|p" "$ROOT/mounts" ;;
--source,FSROOT,TARGET) sed -n "s|^$4 |/ |p" "$ROOT/mounts" ;;
--source,TARGET) sed -n "s|^$4 ||p" "$ROOT/mounts" ;;
esac`,
	"blockdev":  `echo $(($(stat -c %s "$2") * 128))`,
	"dumpe2fs":  `/usr/sbin/dumpe2fs "$@" | awk '/^Block size:/ { $3 *= 128 } { print }'`,
	"resize2fs": `exec /usr/sbin/resize2fs -f "$@"`,
	"rmdir":     `exit 0`,
	"sha256sum": `sed "s|$ROOT||g" | /usr/bin/sha256sum`,
}

// Root returns the directory that is the machine's root for its data volumes.
func (m *Machines) Root(id string) string { return filepath.Join(m.shared, id) }

// Disk returns the file that stands for a volume.
func (m *Machines) Disk(volume string) string { return filepath.Join(m.shared, volume) }

// runWithVolumes runs a script about data volumes on a machine, which sees the volumes that are
// attached to it.
func (m *Machines) runWithVolumes(ctx context.Context, host machine.Machine, cmd remote.Command) (remote.Output, error) {
	ctx = context.WithoutCancel(ctx)
	root := m.Root(host.ID)
	if err := m.plug(ctx, host.ID, root); err != nil {
		return remote.Output{}, err
	}
	script := cmd.Script
	for _, dir := range inRoot {
		script = strings.ReplaceAll(script, dir, root+dir)
	}
	run := exec.CommandContext(ctx, "sh", "-c", script)
	run.Env = []string{"PATH=" + m.volumeBin + ":" + os.Getenv("PATH"), "ROOT=" + root}
	var stderr strings.Builder
	run.Stderr = &stderr
	out, err := run.Output()
	if err != nil {
		return remote.Output{}, &remote.ExitError{Machine: host.Name, Code: 1, Stderr: strings.ReplaceAll(stderr.String(), root, "")}
	}
	return remote.Output{Stdout: []byte(strings.ReplaceAll(string(out), root, ""))}, nil
}

// plug gives the machine the volumes that are attached to it, and takes the others away.
func (m *Machines) plug(ctx context.Context, id, root string) error {
	out, err := m.client.EC2.DescribeVolumes(ctx, &ec2.DescribeVolumesInput{Filters: []types.Filter{{Name: aws.String("attachment.instance-id"), Values: []string{id}}}})
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.volumeBin == "" {
		m.volumeBin = m.t.TempDir()
		for name, code := range commands {
			if err := os.WriteFile(filepath.Join(m.volumeBin, name), []byte("#!/bin/sh\n"+code+"\n"), 0o755); err != nil {
				return err
			}
		}
	}
	byID := filepath.Join(root, "dev/disk/by-id")
	if err := os.RemoveAll(byID); err != nil {
		return err
	}
	for _, dir := range []string{byID, filepath.Join(root, "etc/systemd/system"), filepath.Join(root, "run")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	mounts, _ := os.ReadFile(filepath.Join(root, "mounts"))
	var left []byte
	for _, v := range out.Volumes {
		disk := m.Disk(*v.VolumeId)
		if _, err := os.Stat(disk); err != nil {
			if err := os.WriteFile(disk, nil, 0o600); err != nil {
				return err
			}
		}
		if err := os.Truncate(disk, int64(*v.Size)*bytesPerGiB); err != nil {
			return err
		}
		if err := os.Symlink(disk, filepath.Join(byID, dataVolumeMark+strings.TrimPrefix(*v.VolumeId, "vol-"))); err != nil {
			return err
		}
		for line := range strings.Lines(string(mounts)) {
			if strings.HasPrefix(line, disk+" ") {
				left = append(left, line...)
			}
		}
	}
	return os.WriteFile(filepath.Join(root, "mounts"), left, 0o600)
}
