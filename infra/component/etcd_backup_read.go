package component

import (
	"strconv"
	"strings"
	"time"
)

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
