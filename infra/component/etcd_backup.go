package component

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/unit"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/egress"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/snapshot"
)

// EtcdBackupSpec describes the snapshots of an etcd cluster that its members keep in S3. The zero
// value of a field means its default.
type EtcdBackupSpec struct {
	Cluster Cluster // only Name and PKI are used
	// Members are the machines of the etcd members, in the order in which they are asked for a
	// snapshot.
	Members []Node

	Bucket   string
	Prefix   string // of every key; default snapshot.Prefix
	Region   string // the bucket's; default: that of the key store
	Endpoint string // URL without a bucket; default: that of S3 in the region
	KMSKeyID string // default: as the bucket says

	Interval time.Duration // between two snapshots; default DefaultSnapshotInterval
	// Keep and KeepFor limit how many snapshots are kept and for how long. The newest is always kept.
	Keep    int           // default DefaultSnapshotsKept
	KeepFor time.Duration // default DefaultSnapshotsKeptFor
	// NotBeforeChanges is set if no snapshot is wanted before upgrades, rotations and the removal
	// of members.
	NotBeforeChanges bool
	Extra            []desired.ExtraFile
	Proxy            egress.Proxy // on the way to S3
}

// The defaults of an EtcdBackupSpec: hourly snapshots of a week, and none older than a month.
const (
	DefaultSnapshotInterval = time.Hour
	DefaultSnapshotsKept    = 168
	DefaultSnapshotsKeptFor = 30 * 24 * time.Hour
)

// MinSnapshotInterval is the shortest interval: a snapshot is read, restored for a trial and sent
// within it.
const MinSnapshotInterval = time.Minute

const (
	etcdBackupConfig = EtcdBackupConfDir + "/config"
	etcdBackupKeys   = EtcdBackupConfDir + "/encryption-keys"
)

// checksPerInterval is how often a member looks within an interval whether a snapshot is due.
const checksPerInterval = 10

//go:embed etcd_backup.sh
var etcdBackupScript string

// EtcdBackup returns what one member needs to take snapshots and keep them in S3: a script, its
// configuration and a timer. It uses the programs and certificates of the member itself. The error
// is about the specification.
func EtcdBackup(spec EtcdBackupSpec, n Node) (Machine, error) {
	rank := slices.IndexFunc(spec.Members, func(m Node) bool { return m.Name == n.Name })
	err := slices.Concat(spec.Cluster.checkName(), spec.Check(), spec.CheckRegion()).Err()
	if rank < 0 {
		err = errors.Join(err, fmt.Errorf("it is none of the members"))
	}
	if err != nil {
		return Machine{}, fmt.Errorf("snapshots on %s: %w", n.Name, err)
	}
	service := unitFile(EtcdBackupUnit, []*unit.UnitOption{
		unit.NewUnitOption("Unit", "Description", "Snapshots of etcd in S3"),
		unit.NewUnitOption("Unit", "After", "network-online.target "+EtcdUnit),
		unit.NewUnitOption("Unit", "Wants", "network-online.target"),
		unit.NewUnitOption("Service", "Type", "oneshot"),
		unit.NewUnitOption("Service", "ExecStart", EtcdBackupProgram+" run"),
		unit.NewUnitOption("Service", "TimeoutStartSec", "3600"),
		// etcd's own writes come first.
		unit.NewUnitOption("Service", "Nice", "10"),
		unit.NewUnitOption("Service", "IOSchedulingClass", "idle"),
	})
	check := spec.check().String()
	timer := unitFile(EtcdBackupTimer, []*unit.UnitOption{
		unit.NewUnitOption("Unit", "Description", "Snapshots of etcd in S3"),
		unit.NewUnitOption("Timer", "OnActiveSec", check),
		unit.NewUnitOption("Timer", "OnUnitInactiveSec", check),
		unit.NewUnitOption("Timer", "AccuracySec", "1s"),
		unit.NewUnitOption("Install", "WantedBy", "timers.target"),
	})
	m := Machine{
		State: desired.State{
			Packages: []string{"curl", "openssl"},
			Directories: []desired.Directory{
				{Path: EtcdBackupConfDir, Mode: 0o755},
				{Path: EtcdBackupDir, Mode: 0o700},
			},
			Files: []desired.File{
				{Path: EtcdBackupProgram, Mode: 0o755, Content: []byte("#!/bin/sh\n" + snapshot.S3Functions + "\n" + etcdBackupScript)},
				{Path: etcdBackupConfig, Mode: 0o644, Content: spec.config(n, rank, spec.endpoint()), Text: spec.config(n, rank, hideURLText(spec.endpoint()))},
				service, timer,
			},
			Units: []desired.Unit{running(EtcdBackupTimer)},
		},
		Secrets: []Secret{{Path: etcdBackupKeys, Mode: 0o600, Sources: spec.encryptionKeys(),
			Render: fingerprints(spec.encryptionKeys()), Rendering: "fingerprints"}},
	}
	return m.with(spec.Cluster, spec.Extra), nil
}

// Check reports settings that cannot work.
func (s EtcdBackupSpec) Check() (errs invalid.Fields) {
	interval := s.EffectiveInterval()
	if interval < MinSnapshotInterval {
		errs.Say("interval", "Interval too short", "%s: snapshots are at least %s apart.", interval, MinSnapshotInterval)
	}
	if s.Keep < 0 {
		errs.Say("keep", "Invalid number", "%d snapshots cannot be kept.", s.Keep)
	}
	if keep := s.keepFor(); keep < interval {
		errs.Say("keep_for", "Snapshots would not last", "Snapshots would be deleted after %s, and the next one comes after %s.", keep, interval)
	}
	return errs
}

// CheckRegion reports a bucket without a region. Whether it has one also follows from the key store.
func (s EtcdBackupSpec) CheckRegion() (errs invalid.Fields) {
	if s.region() == "" {
		errs.Say("region", "Missing region", "The key store of the cluster is not in AWS, so there is no default: set the region of the bucket.")
	}
	return errs
}

// CheckMembersOf reports hosts that are no members of the etcd cluster with these endpoints; nil
// endpoints are not known.
func CheckMembersOf(endpoints []string, hosts []Host) (errs invalid.Fields) {
	errs = checkHosts("hosts", hosts)
	for i, h := range hosts {
		if endpoints != nil && h.PrivateIP.IsValid() && !slices.Contains(endpoints, endpointURL(h.PrivateIP, EtcdClientPort)) {
			errs.Say(hostField("hosts", i, "private_ip"), "No member of the etcd cluster",
				"%s with the address %s is none of the members %s: only a member can take snapshots.", h.Name, h.PrivateIP, strings.Join(endpoints, ", "))
		}
	}
	return errs
}

// EffectiveInterval returns the interval, or its default.
func (s EtcdBackupSpec) EffectiveInterval() time.Duration {
	if s.Interval == 0 {
		return DefaultSnapshotInterval
	}
	return s.Interval
}

func (s EtcdBackupSpec) keepFor() time.Duration {
	if s.KeepFor == 0 {
		return DefaultSnapshotsKeptFor
	}
	return s.KeepFor
}

// check is the time between two looks of a member.
func (s EtcdBackupSpec) check() time.Duration { return s.EffectiveInterval() / checksPerInterval }

// Overdue is the age at which the newest snapshot shows that no member takes snapshots: each had its
// turn, and one more interval has passed.
func (s EtcdBackupSpec) Overdue() time.Duration {
	return 2*s.EffectiveInterval() + time.Duration(len(s.Members))*s.check()
}

// Location returns where the snapshots are, as the AWS CLI takes it: s3://<bucket>/<prefix>.
func (s EtcdBackupSpec) Location() string { return "s3://" + s.Bucket + "/" + s.prefix() }

func (s EtcdBackupSpec) prefix() string {
	if s.Prefix == "" {
		return snapshot.Prefix(s.Cluster.Name)
	}
	return s.Prefix
}

func (s EtcdBackupSpec) region() string { return cmp.Or(s.Region, s.Cluster.PKI.Region) }

// endpoint returns the URL to which bucket and key are appended.
func (s EtcdBackupSpec) endpoint() string {
	if s.Endpoint == "" {
		return snapshot.Endpoint(s.region())
	}
	return strings.TrimSuffix(s.Endpoint, "/")
}

// encryptionKeys are the names in the key store of every key that is trusted.
func (s EtcdBackupSpec) encryptionKeys() []string {
	return s.Cluster.PKI.Generations.SecretNames(pki.KindEncryption)
}

// fingerprints returns a rendering of keys as lines "<name> <fingerprint>".
func fingerprints(names []string) func([][]byte) ([]byte, error) {
	return func(values [][]byte) ([]byte, error) {
		var out strings.Builder
		for i, v := range values {
			fmt.Fprintf(&out, "%s %s\n", names[i], pki.Fingerprint(v))
		}
		return []byte(out.String()), nil
	}
}

// config renders what the script reads. Values are quoted for the shell.
func (s EtcdBackupSpec) config(n Node, rank int, endpoint string) []byte {
	before := "yes"
	if s.NotBeforeChanges {
		before = "no"
	}
	keep := s.Keep
	if keep == 0 {
		keep = DefaultSnapshotsKept
	}
	seconds := func(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }
	var out strings.Builder
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
	for _, v := range [][2]string{
		{"CLUSTER", s.Cluster.Name}, {"MEMBER", n.Name}, {"RANK", strconv.Itoa(rank)}, {"DIR", EtcdBackupDir},
		{"ETCD", endpointURL(loopback, EtcdClientPort)}, {"ETCD_CA", EtcdCAPath}, {"ETCD_CERT", EtcdServerCert}, {"ETCD_KEY", EtcdServerKey},
		{"ENCRYPTION_KEYS", etcdBackupKeys},
		{"S3_ENDPOINT", endpoint}, {"S3_REGION", s.region()}, {"S3_BUCKET", s.Bucket}, {"S3_KMS_KEY", s.KMSKeyID}, {"PREFIX", s.prefix()},
		{"INTERVAL", seconds(s.EffectiveInterval())}, {"CHECK", seconds(s.check())}, {"KEEP", strconv.Itoa(keep)}, {"KEEP_FOR", seconds(s.keepFor())},
		{"BEFORE_CHANGES", before},
	} {
		fmt.Fprintf(&out, "%s=%s\n", v[0], quote(v[1]))
	}
	for _, v := range s.Proxy.Environment() {
		name, value, _ := strings.Cut(v, "=")
		fmt.Fprintf(&out, "export %s=%s\n", name, quote(value))
	}
	return []byte(out.String())
}

// Traces returns what [EtcdBackupSpec.Read] needs from a machine.
func (EtcdBackupSpec) Traces() Traces { return Traces{Files: []string{etcdBackupConfig}} }

// Read returns the specification with the settings found on a member. The error is a
// [NothingFoundError] if the machine keeps no snapshots.
func (s EtcdBackupSpec) Read(f Found) (EtcdBackupSpec, error) {
	values := map[string]string{}
	for line := range strings.Lines(string(f.Files[etcdBackupConfig])) {
		name, quoted, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[name] = strings.ReplaceAll(strings.Trim(quoted, "'"), `'\''`, "'")
	}
	if values["S3_BUCKET"] == "" {
		return s, &NothingFoundError{etcdBackupConfig + " is not on the machine: is this the right host?"}
	}
	// A setting that is the default is not found.
	found := func(field *string, name, standard string) {
		if *field == "" && values[name] != standard {
			*field = values[name]
		}
	}
	found(&s.Bucket, "S3_BUCKET", "")
	found(&s.Region, "S3_REGION", s.region())
	found(&s.KMSKeyID, "S3_KMS_KEY", "")
	found(&s.Prefix, "PREFIX", s.prefix())
	found(&s.Endpoint, "S3_ENDPOINT", s.endpoint())
	seconds := func(field *time.Duration, name string, standard time.Duration) {
		n, err := strconv.Atoi(values[name])
		if d := time.Duration(n) * time.Second; err == nil && *field == 0 && d != standard {
			*field = d
		}
	}
	seconds(&s.Interval, "INTERVAL", DefaultSnapshotInterval)
	seconds(&s.KeepFor, "KEEP_FOR", DefaultSnapshotsKeptFor)
	if n, err := strconv.Atoi(values["KEEP"]); err == nil && s.Keep == 0 && n != DefaultSnapshotsKept {
		s.Keep = n
	}
	s.NotBeforeChanges = values["BEFORE_CHANGES"] == "no"
	return s, nil
}
