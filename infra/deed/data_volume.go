package deed

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// The unit that mounts a data volume, and the program that it runs.
const (
	DataVolumeUnit    = "k8s-data-volume.service"
	DataVolumeProgram = "/usr/local/sbin/mount-data-volume"
)

//go:embed mount-data-volume
var mountDataVolume string

// DataVolume is the volume with a machine's data, as the machine knows it.
type DataVolume struct {
	ID         string // "vol-0123abcd"
	MountPoint string
	// FileSystem is the UUID of the file system that is known to be on the volume, empty if none is.
	FileSystem string
	// Units may start only once the volume is mounted. They need not exist.
	Units []string
}

// uuid returns the UUID of the volume's file system: the known one, else the one that it gets. That
// follows from the volume's id: so a file system that was made is recognised as ours if nobody noted
// that it was made.
func (v DataVolume) uuid() string {
	if v.FileSystem != "" {
		return v.FileSystem
	}
	return v.newUUID()
}

// newUUID returns a UUID of version 8, which is for such use. https://www.rfc-editor.org/rfc/rfc9562
func (v DataVolume) newUUID() string {
	sum := sha256.Sum256([]byte("k8s-from-scratch data volume " + v.ID))
	b := sum[:16]
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// unit returns the unit that mounts the volume. It does not remain active: so each start of what needs
// the volume looks again whether it is mounted. It has no limit of starts, since systemd counts all of
// them: restarts of etcd would use it up, and etcd would stay dead.
func (v DataVolume) unit() string {
	units := strings.Join(v.Units, " ")
	return "[Unit]\n" +
		"Description=Data volume " + v.ID + " at " + v.MountPoint + "\n" +
		"Before=" + units + "\n" +
		"StartLimitIntervalSec=0\n\n" +
		"[Service]\n" +
		"Type=oneshot\n" +
		"ExecStart=" + DataVolumeProgram + " " + v.ID + " " + v.uuid() + " " + v.MountPoint + "\n" +
		"TimeoutStartSec=15min\n\n" + // a check of a large file system
		"[Install]\n" +
		"WantedBy=multi-user.target\n" +
		"RequiredBy=" + units
}

// UseDataVolume mounts the volume and keeps it mounted there after every start of the machine. An
// empty volume gets a file system; any other must have the known one. It returns the UUID of the file
// system.
func UseDataVolume(ctx context.Context, r Runner, v DataVolume) (string, error) {
	args := append([]string{v.ID, v.MountPoint, v.FileSystem, v.newUUID(), DataVolumeUnit, v.unit(), DataVolumeProgram, strings.TrimSuffix(mountDataVolume, "\n")}, v.Units...)
	out, err := dataVolume.run(ctx, r, dataVolume.script(args...), nil)
	return strings.TrimSpace(out), err
}

// GrowDataVolume grows the volume's file system to the size of the volume, once the machine sees that
// many bytes. It stays mounted.
func GrowDataVolume(ctx context.Context, r Runner, id string, bytes int64) error {
	return growDataVolume.do(ctx, r, id, strconv.FormatInt(bytes, 10))
}

// MountDataVolume mounts the data volume that a unit of the machine needs, and reports whether there is
// one.
func MountDataVolume(ctx context.Context, r Runner, needy string) (has bool, err error) {
	out, err := startDataVolume.run(ctx, r, startDataVolume.script(DataVolumeUnit, needy), nil)
	return strings.TrimSpace(out) != "", err
}

// DataVolumeUse is how a data volume is used on a machine.
type DataVolumeUse struct {
	Device     bool   // the machine sees the volume
	FileSystem string // UUID; empty if there is none
	// Mounted is the volume's id if it is mounted where it should be, else what is, empty if nothing.
	Mounted string
	// Elsewhere are further directories at which it is mounted.
	Elsewhere []string
	// Files are the SHA-256 of the unit and the program in hex, by path. Wanted are those of the files
	// that UseDataVolume writes.
	Files, Wanted map[string]string
	// Unlinked are the units that would start without the volume.
	Unlinked []string
	Small    bool // the file system does not fill the volume
}

// InspectDataVolume returns how the volume is used. It changes nothing.
func InspectDataVolume(ctx context.Context, r Runner, v DataVolume) (DataVolumeUse, error) {
	args := append([]string{v.ID, v.MountPoint, DataVolumeUnit, DataVolumeProgram}, v.Units...)
	out, err := inspectDataVolume.run(ctx, r, inspectDataVolume.script(args...), nil)
	if err != nil {
		return DataVolumeUse{}, err
	}
	return readDataVolumeUse(out, v), nil
}

func readDataVolumeUse(out string, v DataVolume) DataVolumeUse {
	use := DataVolumeUse{Files: map[string]string{}, Wanted: map[string]string{
		DataVolumeProgram:                       digest(mountDataVolume),
		"/etc/systemd/system/" + DataVolumeUnit: digest(v.unit() + "\n"),
	}}
	for line := range strings.Lines(out) {
		fact, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch fact {
		case "device":
			use.Device = true
		case "uuid":
			use.FileSystem = value
		case "mounted":
			use.Mounted = value
		case "elsewhere":
			use.Elsewhere = append(use.Elsewhere, value)
		case "file":
			path, sum, _ := strings.Cut(value, " ")
			use.Files[path] = sum
		case "unlinked":
			use.Unlinked = append(use.Unlinked, value)
		case "small":
			use.Small = true
		}
	}
	return use
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
