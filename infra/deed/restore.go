package deed

import (
	"context"
	_ "embed"
	"strconv"
)

// Location is where snapshots of etcd are in S3, and how a machine reaches them.
type Location struct {
	Functions string // of a shell, for S3; see package snapshot
	Endpoint  string // URL without a bucket
	Region    string
	Bucket    string
	Prefix    string // of the keys
}

// NewMember is the member of etcd for which data are made.
type NewMember struct {
	DataDir string
	// Mark identifies the restore. It is kept with the data, in [RestoredFrom].
	Mark    string
	Name    string
	PeerURL string
	// InitialCluster are the members of the cluster in etcd's own form; Token identifies it.
	InitialCluster, Token string
	// AddRevisions is how much the revision grows.
	AddRevisions int64
}

// The files in a member's data that a restore has made: its mark while it is under way, the mark once
// it is done, the name of the snapshot, and the token of the cluster.
const (
	RestoredFrom     = "restored-from"
	RestoredDone     = "restored-done"
	RestoredSnapshot = "restored-snapshot"
	RestoredToken    = "restored-token"
)

//go:embed restoring
var restoring string

// restores runs a deed with the functions of restores, and others. Each such deed begins with the same
// arguments: data directory, mark of the restore, name of the snapshot or of the member.
func (d deed) restores(ctx context.Context, r Runner, functions, dataDir, mark, name string, args ...string) error {
	_, err := d.run(ctx, r, d.scriptWith(functions+restoring, append([]string{dataDir, mark, name}, args...)...), nil)
	return err
}

// Where MakeFromSnapshot puts an object, and a database that is made, below the data directory.
const (
	StagedDownload = "/restore/work/db"
	StagedDatabase = "/restore/member/snap/db"
)

// RoomForSnapshot is how many bytes MakeFromSnapshot needs for an object of that size: it is on the disk
// beside the database that is made from it, and a log is written.
func RoomForSnapshot(size int64) int64 { return 2*size + 128<<20 }

// FindSnapshot returns the description of the snapshot with that name, or of the newest one if name
// is empty. It changes nothing.
func FindSnapshot(ctx context.Context, r Runner, from Location, name string) (description string, err error) {
	return findSnapshot.run(ctx, r, findSnapshot.scriptWith(from.Functions, from.Endpoint, from.Region, from.Bucket, from.Prefix, name), nil)
}

// MakeFromSnapshot makes the data of a member from a snapshot, beside the data in use. The object must
// have this size and SHA-256.
func MakeFromSnapshot(ctx context.Context, r Runner, from Location, name string, size int64, sha256 string, m NewMember) error {
	return makeFromSnapshot.restores(ctx, r, from.Functions, m.DataDir, m.Mark, name,
		from.Endpoint, from.Region, from.Bucket, from.Prefix, strconv.FormatInt(size, 10), sha256,
		m.Name, m.PeerURL, m.InitialCluster, m.Token, strconv.FormatInt(m.AddRevisions, 10))
}

// MakeFromMember makes the data of the only member of a new cluster from the data of that member,
// beside them. It stops the unit. m.InitialCluster is not used.
func MakeFromMember(ctx context.Context, r Runner, unit, ca, cert, key string, m NewMember) error {
	return makeFromMember.restores(ctx, r, "", m.DataDir, m.Mark, m.Name, m.PeerURL, m.Token, strconv.FormatInt(m.AddRevisions, 10), unit, ca, cert, key)
}

// UseRestored stops a unit and puts the data that were made in place of those in use. snapshot is
// the name of the snapshot, or of the member, from which they were made.
func UseRestored(ctx context.Context, r Runner, unit, dataDir, mark, snapshot string) error {
	return useRestored.restores(ctx, r, "", dataDir, mark, snapshot, unit)
}

// EndRestore notes in a member's data that the restore with this mark is done. An empty mark forgets
// every restore. Data that were made and are not in use are deleted.
func EndRestore(ctx context.Context, r Runner, dataDir, mark string) error {
	return endRestore.restores(ctx, r, "", dataDir, mark, "")
}

// SetAside stops a unit and puts a member's data into "replaced-<time>" of the data directory.
func SetAside(ctx context.Context, r Runner, unit, dataDir string) error {
	return setAside.restores(ctx, r, "", dataDir, "", "", unit)
}
