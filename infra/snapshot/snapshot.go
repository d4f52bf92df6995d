// Package snapshot says how snapshots of etcd lie in an S3 bucket: the names of their objects, and
// what is said of each beside it. It also holds the functions with which machines reach S3.
//
// A snapshot is two objects. "<name>.db" is what etcd answered to Maintenance.Snapshot.
// "<name>.json" describes it, and is written last: a snapshot without one does not count.
//
// What may not enter: I/O, and when a snapshot is taken or restored.
package snapshot

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Format is the number of the form of [Description]. One with another number is refused.
const Format = 1

// The ends of the keys of a snapshot's two objects.
const (
	DataSuffix        = ".db"
	DescriptionSuffix = ".json"
)

// S3Functions are functions of a POSIX shell with which machines reach S3. The file's first lines
// describe them.
//
//go:embed s3.sh
var S3Functions string

// timeForm is that of the time in a name, always in UTC. Names sort by time.
const timeForm = "20060102T150405Z"

var names = regexp.MustCompile(`^(\d{8}T\d{6}Z)-(\d+)$`)

// Prefix returns the default of what the keys of a cluster's snapshots begin with.
func Prefix(cluster string) string { return "k8s/" + cluster + "/etcd/" }

// Endpoint returns the default of the URL at which machines reach S3 in a region. Regions of the partition aws-cn have a
// domain of their own. https://docs.aws.amazon.com/general/latest/gr/s3.html
func Endpoint(region string) string {
	domain := "amazonaws.com"
	if strings.HasPrefix(region, "cn-") {
		domain = "amazonaws.com.cn"
	}
	return "https://s3." + region + "." + domain
}

// Description is what is known of one snapshot. It is valid if it comes from [Parse].
type Description struct {
	Format int `json:"format"`
	// Name is what its objects are called after the prefix: "<time>-<revision>".
	Name    string    `json:"name"`
	Time    time.Time `json:"time"` // when the member began to send it; whole seconds, UTC
	Cluster string    `json:"cluster"`
	// EtcdClusterID is etcd's own identifier of the cluster, in hex. A restored cluster has another.
	EtcdClusterID string `json:"etcd_cluster_id"`
	EtcdVersion   string `json:"etcd_version"` // of the member: "3.6.16"
	Member        string `json:"member"`       // the machine that took it
	Revision      int64  `json:"revision"`
	Keys          int64  `json:"keys"` // as etcdutl counts them: all revisions that are kept
	// Hash is etcd's hash of the content, in hex, from "etcdutl snapshot status".
	Hash string `json:"hash"`
	Size int64  `json:"size"` // of the object, in bytes
	// SHA256 is that of the object, in hex.
	SHA256 string `json:"sha256"`
	// EncryptionKeys are the keys that the API servers encrypted with, or could decrypt with, when
	// it was taken. Without any of them some objects may be unreadable.
	EncryptionKeys []EncryptionKey `json:"encryption_keys"`
}

// EncryptionKey identifies a key without revealing it.
type EncryptionKey struct {
	Name   string `json:"name"`   // in the key store: "encryption.key"
	SHA256 string `json:"sha256"` // of the value in the key store, in hex
}

// Parse reads a description. The error says what is wrong with it.
func Parse(text []byte) (Description, error) {
	var d Description
	if err := json.Unmarshal(text, &d); err != nil {
		return d, fmt.Errorf("not a description of a snapshot: %w", err)
	}
	if d.Format != Format {
		return d, fmt.Errorf("not a description of a snapshot of form %d, but of form %d", Format, d.Format)
	}
	at, revision, err := split(d.Name)
	if err != nil {
		return d, err
	}
	switch {
	case !at.Equal(d.Time) || revision != fmt.Sprint(d.Revision):
		err = fmt.Errorf("the name %s does not belong to the time %s and revision %d", d.Name, d.Time.Format(time.RFC3339), d.Revision)
	case d.Size <= 0 || len(d.SHA256) != 64 || d.Hash == "" || d.Cluster == "" || d.EtcdClusterID == "":
		err = errors.New("not a description of a snapshot: it lacks the size, a digest, the cluster or its identifier")
	}
	return d, err
}

// Newer returns the newer of two snapshots, each of which may be nil.
func Newer(a, b *Description) *Description {
	if a == nil || b != nil && b.Time.After(a.Time) {
		return b
	}
	return a
}

// Of returns the name of a snapshot with this key, of its data or its description; false if it is
// none, or not directly below the prefix.
func Of(prefix, key string) (name string, ok bool) {
	rest, ok := strings.CutPrefix(key, prefix)
	if !ok {
		return "", false
	}
	name, described := strings.CutSuffix(rest, DescriptionSuffix)
	if !described {
		if name, ok = strings.CutSuffix(rest, DataSuffix); !ok {
			return "", false
		}
	}
	return name, names.MatchString(name)
}

// Described returns the names of the snapshots that count among the keys of a bucket, oldest first:
// those with both objects.
func Described(prefix string, keys []string) []string {
	var out []string
	for _, key := range keys {
		name, ok := Of(prefix, key)
		if ok && strings.HasSuffix(key, DescriptionSuffix) && slices.Contains(keys, prefix+name+DataSuffix) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Time returns when the snapshot of a name was taken.
func Time(name string) (time.Time, error) {
	at, _, err := split(name)
	return at, err
}

func split(name string) (at time.Time, revision string, err error) {
	m := names.FindStringSubmatch(name)
	if m != nil {
		at, err = time.Parse(timeForm, m[1])
	}
	if m == nil || err != nil {
		return at, "", fmt.Errorf("%q is not the name of a snapshot, such as 20260102T030405Z-1234", name)
	}
	return at, m[2], nil
}
