package etcdbackup

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/snapshot"
)

// described returns the line with which a machine names a snapshot.
func described(at time.Time, revision int) string {
	return fmt.Sprintf(`newest {"format":1,"name":"%s-%d","time":"%s","cluster":"demo","etcd_cluster_id":"1a","etcd_version":"3.6.16","member":"a","revision":%d,"keys":3,"hash":"ff","size":9,"sha256":"%s","encryption_keys":[]}`,
		at.Format("20060102T150405Z"), revision, at.Format(time.RFC3339), revision, strings.Repeat("0a", 32))
}

// TestSnapshotsAreJudged reads what machines say of snapshots, and compares it with what is wanted.
func TestSnapshotsAreJudged(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	x := Backup{Spec: component.EtcdBackupSpec{Cluster: component.Cluster{Name: "demo"}, Bucket: "b"}}
	fresh, old := described(now.Add(-time.Hour), 8), described(now.Add(-3*time.Hour), 7)
	for name, tt := range map[string]struct {
		said             []string // by each machine
		newest           int64    // revision; 0: none
		known            bool
		found, unjudged  []finding.Problem
		foundOn, because string
	}{
		"fresh":                       {said: []string{fresh + "\ncount 2\n"}, newest: 8, known: true},
		"the newest of what two see":  {said: []string{old + "\ncount 1\n", fresh + "\ncount 2\n"}, newest: 8, known: true},
		"too old":                     {said: []string{old + "\ncount 1\n"}, newest: 7, known: true, found: []finding.Problem{finding.TooOld}, foundOn: "s3://b/k8s/demo/etcd/"},
		"none":                        {said: []string{"count 0\n"}, known: true, found: []finding.Problem{finding.Missing}},
		"one cannot read it, one can": {said: []string{"unknown S3 answers 403\n", fresh + "\ncount 1\n"}, newest: 8, known: true},
		"nobody can read it":          {said: []string{"unknown S3 answers 403\n"}, unjudged: []finding.Problem{finding.Unjudged}, because: "machine m0: S3 answers 403"},
		"what is read makes no sense": {said: []string{"newest {}\ncount 1\n"}, unjudged: []finding.Problem{finding.Unjudged}, because: "not a description"},
		"a run failed":                {said: []string{fresh + "\ncount 1\n", "failed 2026 no room\n" + fresh + "\ncount 1\n"}, newest: 8, known: true, found: []finding.Problem{finding.NotTaken}, foundOn: "m1", because: "2026 no room"},
		"nothing is installed":        {said: []string{""}},
		"a run failed and S3 is away": {said: []string{"failed 2026 x\nunknown S3 answers 503\n"}, found: []finding.Problem{finding.NotTaken}, unjudged: []finding.Problem{finding.Unjudged}},
		"the age is no finding":       {said: []string{described(now.Add(-2*time.Hour), 7) + "\ncount 1\n"}, newest: 7, known: true},
	} {
		var answers []fleet.Snapshots
		for i, lines := range tt.said {
			answers = append(answers, fleet.ReadSnapshots(fmt.Sprintf("m%d", i), "at s3://b/k8s/demo/etcd/\n"+lines))
		}
		got, found, unjudged := x.judge(now, answers)
		switch {
		case (got != nil) != tt.known:
			t.Errorf("%s: known: %v", name, got)
		case got != nil && (got.newest != nil) != (tt.newest != 0), tt.newest != 0 && got.newest.Revision != tt.newest:
			t.Errorf("%s: the newest is %+v", name, got.newest)
		}
		var because, subjects string
		problems := func(list []finding.Finding) (out []finding.Problem) {
			for _, f := range list {
				out, because, subjects = append(out, f.Problem), because+f.Cause, subjects+f.Subject
			}
			return out
		}
		if p, u := problems(found), problems(unjudged); !slices.Equal(p, tt.found) || !slices.Equal(u, tt.unjudged) ||
			!strings.Contains(because, tt.because) || !strings.Contains(subjects, tt.foundOn) {
			t.Errorf("%s: found %v, unjudged %v, on %q because of %q", name, found, unjudged, subjects, because)
		}
	}
	x.MaxAge = 4 * time.Hour
	if _, found, _ := x.judge(now, []fleet.Snapshots{fleet.ReadSnapshots("m0", "at s3://b/k8s/demo/etcd/\n"+old)}); len(found) > 0 {
		t.Errorf("younger than max_age, and found: %v", found)
	}
	if got, found, unjudged := x.judge(now, []fleet.Snapshots{fleet.ReadSnapshots("m0", "at s3://elsewhere/\ncount 0\n")}); got != nil || len(found)+len(unjudged) > 0 {
		t.Errorf("another bucket was asked, and %v, %v, %v found", got, found, unjudged)
	}
	if a := (fleet.Snapshots{Machine: "m0", Err: errors.New("no answer")}); snapshot.Newer(a.Newest, nil) != nil {
		t.Error("nothing is newer than nothing")
	}
}
