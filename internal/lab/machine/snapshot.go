package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
)

// A snapshot is what a machine's disk has beside what it was made from, at one moment. Disks that are made from it
// lie on top of it and share its storage. It is a directory:
//
//	image        what its machine's disk was made from, see source
//	removed      if it exists, the snapshot is no more, and stays as long as disks lie on it
//	upper, data  of a container, as in disk
//	disk.qcow2   of a virtual machine, as in disk
//
// That of a volume is another one: see volumeCopy.

// snapshotID matches the ids of snapshots: they are names of directories, too.
var snapshotID = regexp.MustCompile(`^snap-[0-9a-f]{8,17}$`)

func (m *Manager) snapshotsDir() string { return filepath.Join(m.stateDir, "snapshots") }

// A source is what a disk is made from: an image, and snapshots on top of it. Its file has the directories, one a
// line, the newest snapshot first and the image last.
type source struct {
	image     Image    // of a disk that exists, only Dir
	snapshots []string // directories
}

// layers are the layers of a container's overlay, the uppermost first.
func (s source) layers() []string {
	var out []string
	for _, dir := range s.snapshots {
		out = append(out, filepath.Join(dir, "upper"))
	}
	return append(out, s.image.Dir)
}

// data returns the directory with the content of dataDirs; empty if there is none.
func (s source) data() string {
	switch {
	case len(s.snapshots) > 0:
		return filepath.Join(s.snapshots[0], "data")
	case s.image.Captured:
		return filepath.Join(s.image.Dir, "var/lib")
	}
	return ""
}

// madeFrom records what the disk is made from.
func (d disk) madeFrom(from source) error {
	dirs := append(slices.Clone(from.snapshots), from.image.Dir)
	return os.WriteFile(d.path("image"), []byte(strings.Join(dirs, "\n")), 0o600)
}

// source returns what the disk was made from.
func (d disk) source() (source, error) {
	raw, err := os.ReadFile(d.path("image"))
	if err != nil {
		return source{}, err
	}
	dirs := strings.Split(string(raw), "\n")
	for _, dir := range dirs {
		if _, err := os.Stat(dir); err != nil {
			return source{}, fmt.Errorf("base image: %w", err)
		}
	}
	last := len(dirs) - 1
	return source{Image{Dir: dirs[last]}, dirs[:last]}, nil
}

// sourcesIn returns what the disks of machines and snapshots of a lab were made from.
func sourcesIn(stateDir string) ([]source, error) {
	var out []source
	for _, kind := range []string{"machines", "snapshots"} {
		entries, err := os.ReadDir(filepath.Join(stateDir, kind))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, e := range entries {
			from, err := disk(filepath.Join(stateDir, kind, e.Name())).source()
			if errors.Is(err, fs.ErrNotExist) {
				continue // it has just been removed, or is being made
			}
			if err != nil {
				return nil, err
			}
			out = append(out, from)
		}
	}
	return out, nil
}

// prepare makes the machine's disk ready for a boot.
func (m *Manager) prepare(ctx context.Context, in *instance, s Spec) error {
	m.sources.RLock()
	defer m.sources.RUnlock()
	from, err := m.sourceOf(s)
	if err != nil && !in.disk.prepared() {
		return err
	}
	if err := in.platform.prepare(ctx, in, s, from); err != nil {
		return fmt.Errorf("prepare disk: %w", err)
	}
	return nil
}

// sourceOf returns what the disk of a new machine is made from.
func (m *Manager) sourceOf(s Spec) (source, error) {
	if s.Snapshot == "" {
		img, err := m.image(s.Image)
		return source{image: img}, err
	}
	at, err := m.snapshot(s.Snapshot)
	if err != nil {
		return source{}, err
	}
	from, err := at.source()
	from.snapshots = slices.Concat([]string{string(at)}, from.snapshots)
	return from, err
}

// snapshot returns the directory of a snapshot that exists.
func (m *Manager) snapshot(id string) (disk, error) {
	at := disk(filepath.Join(m.snapshotsDir(), id))
	if !snapshotID.MatchString(id) || !exists(string(at)) || exists(at.path("removed")) {
		return "", fmt.Errorf("there is no snapshot %q", id)
	}
	return at, nil
}

// Snapshot takes a snapshot of a machine's disk, without its volumes. A running machine stands still meanwhile, so
// that the snapshot is what a power cut would leave. It is no error if the snapshot exists.
func (m *Manager) Snapshot(ctx context.Context, id, snapshot string) error {
	if !snapshotID.MatchString(snapshot) {
		return fmt.Errorf("snapshot of machine %s: invalid id %q", id, snapshot)
	}
	in, done, err := m.acquire(ctx, id)
	if err != nil {
		return err
	}
	defer done()
	m.sources.RLock()
	defer m.sources.RUnlock()
	if err := in.takeSnapshot(ctx, filepath.Join(m.snapshotsDir(), snapshot)); err != nil {
		return fmt.Errorf("snapshot %s of machine %s: %w", snapshot, id, err)
	}
	return nil
}

func (in *instance) takeSnapshot(ctx context.Context, at string) error {
	if exists(at) {
		return nil
	}
	from, err := in.disk.source()
	if err != nil {
		return err
	}
	// It is made beside its destination and renamed, so that an interrupted one does not count.
	made := disk(filepath.Join(filepath.Dir(at), "."+filepath.Base(at)))
	if err := errors.Join(os.RemoveAll(string(made)), os.Mkdir(string(made), 0o755)); err != nil {
		return err
	}
	defer os.RemoveAll(string(made)) //nolint:errcheck // it has been renamed, or is removed by the next sweep
	take := func() error { return in.platform.snapshot(ctx, in, string(made)) }
	if in.running() != nil {
		running := take
		take = func() error { return in.platform.still(ctx, in, running) }
	}
	if err := errors.Join(made.madeFrom(from), take()); err != nil {
		return err
	}
	return file.Rename(string(made), at)
}

// cp copies files and directories into a directory, with all that the kernel knows of them.
func cp(ctx context.Context, fromAndTo ...string) error {
	cmd := exec.CommandContext(ctx, "cp", append([]string{"-a", "--reflink=auto", "--sparse=auto", "--"}, fromAndTo...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // or it would go on when the machine runs again
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("copy: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Snapshots lists the snapshots.
func (m *Manager) Snapshots() ([]string, error) {
	entries, err := os.ReadDir(m.snapshotsDir())
	if err != nil {
		return nil, fmt.Errorf("snapshots: %w", err)
	}
	var ids []string
	for _, e := range entries {
		if _, err := m.snapshot(e.Name()); err == nil {
			ids = append(ids, e.Name())
		}
	}
	return ids, nil
}

// RemoveSnapshot removes a snapshot. Machines that were made from it keep what they have of it. It is no error if
// there is none.
func (m *Manager) RemoveSnapshot(id string) error {
	at, err := m.snapshot(id)
	if err != nil {
		return nil //nolint:nilerr // it says that there is none
	}
	if err := os.WriteFile(at.path("removed"), nil, 0o600); err != nil {
		return fmt.Errorf("remove snapshot %s: %w", id, err)
	}
	return m.sweepSnapshots()
}

// sweepSnapshots removes what is left of interrupted snapshots, and the removed ones that no disk lies on.
func (m *Manager) sweepSnapshots() error {
	m.sources.Lock()
	defer m.sources.Unlock()
	for {
		sources, err := sourcesIn(m.stateDir)
		if err != nil {
			return fmt.Errorf("remove snapshots: %w", err)
		}
		entries, err := os.ReadDir(m.snapshotsDir())
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("remove snapshots: %w", err)
		}
		removed := false // another one may be unused now
		for _, e := range entries {
			at := filepath.Join(m.snapshotsDir(), e.Name())
			used := slices.ContainsFunc(sources, func(s source) bool { return slices.Contains(s.snapshots, at) })
			if used || snapshotID.MatchString(e.Name()) && !exists(filepath.Join(at, "removed")) {
				continue
			}
			if err := os.RemoveAll(at); err != nil {
				return fmt.Errorf("remove snapshots: %w", err)
			}
			removed = true
		}
		if !removed {
			return nil
		}
	}
}
