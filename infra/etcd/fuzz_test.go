package etcd

import (
	"strings"
	"testing"
)

// FuzzMetrics checks the reader of a member's metrics.
func FuzzMetrics(f *testing.F) {
	f.Add("# TYPE etcd_disk_wal_fsync_duration_seconds histogram\netcd_disk_wal_fsync_duration_seconds_bucket{le=\"0.001\"} 1\netcd_disk_wal_fsync_duration_seconds_bucket{le=\"+Inf\"} 2\netcd_disk_wal_fsync_duration_seconds_sum 1\netcd_disk_wal_fsync_duration_seconds_count 2\n")
	f.Add("etcd_disk_wal_fsync_duration_seconds 1\n")
	f.Add("#TYPE a histogram\n{}") // the parser panics
	f.Fuzz(func(t *testing.T, metrics string) {
		if m, err := metricsOf(t.Context(), strings.NewReader(metrics)); err == nil {
			_ = m.Disk.Slow()
		}
	})
}

// FuzzAlarms checks the reader of the alarms in a member's status.
func FuzzAlarms(f *testing.F) {
	f.Add("memberID:1234 alarm:NOSPACE ", "etcdserver: no leader")
	f.Add("memberID: 99999999999999999999999 alarm:CORRUPT", "alarm:X")
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, alarm := range alarmsOf([]string{a, b}) {
			_ = alarm.Of(1)
		}
	})
}
