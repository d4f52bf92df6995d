package drift_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// quotaMiB is the quota of this cluster: it holds its objects several times, and is soon full.
const quotaMiB = 100

// smallQuota gives etcd a quota that a test can fill.
const smallQuota = `resource "k8s_etcd_cluster" "this" {
  quota_mib = %d
}
`

// database is what etcdctl says of a member.
type database struct {
	Status struct {
		Header struct {
			Member uint64 `json:"member_id"`
		} `json:"header"`
		Leader uint64 `json:"leader"`
		Size   int64  `json:"dbSize"`
		InUse  int64  `json:"dbSizeInUse"`
	} `json:"Status"`
}

func (w *world) database(t *testing.T, machine string) database {
	t.Helper()
	var found []database
	if err := json.Unmarshal([]byte(w.Sh(t, machine, etcdctl+"endpoint status -w json")), &found); err != nil || len(found) != 1 {
		t.Fatalf("%s: %v, %v", machine, found, err)
	}
	return found[0]
}

// fill writes values of a MiB to etcd until it refuses or n are there, and returns etcd's answer to
// the last one.
func (w *world) fill(t *testing.T, n int) string {
	t.Helper()
	return w.Sh(t, "controller-0", fmt.Sprintf(`head -c 750000 /dev/urandom | base64 -w 0 > /tmp/value
i=0; while [ $i -lt %d ]; do i=$((i+1)); %sput /fill/$i < /tmp/value 2>&1 || break; done | tail -n 1`, n, etcdctl))
}

// controllers are the machines of etcd's members.
var controllers = []string{"controller-0", "controller-1", "controller-2"}

// testFragmented: the database of each member is mostly free. The plan names them, and the apply
// defragments one after the other; the leader hands over before its turn.
func (w *world) testFragmented(t *testing.T) {
	w.fill(t, 70)
	w.Sh(t, "controller-0", etcdctl+`del --prefix /fill/ && `+etcdctl+`compact $(`+etcdctl+`endpoint status -w json | grep -o '"revision":[0-9]*' | cut -d: -f2)`)
	eventually(t, "the values are gone", func() error {
		for _, m := range controllers {
			if d := w.database(t, m); d.Status.InUse > 40<<20 {
				return fmt.Errorf("%s has %d bytes in use", m, d.Status.InUse)
			}
		}
		return nil
	})
	w.repairSpace(t, `etcd database: [0-9.]+ MiB of quota 100 MiB, [0-9.]+ MiB free inside, wants defragmentation`)
}

// testFull: etcd refuses to store anything. The plan names the alarm of each member that has raised
// it, the API servers are not rolled meanwhile, and an apply repairs etcd. Then the cluster stores
// again.
func (w *world) testFull(t *testing.T) {
	if said := w.fill(t, 200); !strings.Contains(said, "database space exceeded") {
		t.Fatalf("filling ended with %q", said)
	}
	w.Sh(t, "controller-0", etcdctl+"del --prefix /fill/") // it deletes; the space stays used until a compaction
	w.repairSpace(t, `etcd alarm NOSPACE: [0-9.]+ MiB of quota 100 MiB, [0-9.]+ MiB hold data, and nothing more is stored|`+
		`etcd database: [0-9.]+ MiB of quota 100 MiB, [0-9.]+ MiB free inside, wants defragmentation`)
	if alarms := w.Sh(t, "controller-0", etcdctl+"alarm list"); strings.TrimSpace(alarms) != "" {
		t.Errorf("alarms: %s", alarms)
	}
	w.Kubectl(t, "create", "namespace", "stored-again")
	w.Kubectl(t, "delete", "namespace", "stored-again")
	w.Kubectl(t, "wait", "--for=condition=Ready", "--timeout=60s", "nodes", "--all")
}

// repairSpace plans, compares the findings with a pattern, applies, and checks that every database
// is small, that no unit of etcd or the API servers was restarted, and that the next plan is empty.
func (w *world) repairSpace(t *testing.T, pattern string) {
	t.Helper()
	started := w.Units(t)
	changes, text, err := w.WS.Plan(t.Context(), "-out=drift.tfplan")
	if err != nil || !changes {
		t.Fatalf("the plan saw nothing: %v", err)
	}
	planned := w.planned(t)
	drift, _ := planned[etcdCluster].Change.Before["drift"].(map[string]any)
	for _, m := range controllers {
		words := fmt.Sprint(drift[m])
		if !regexp.MustCompile("^(?:"+pattern+")$").MatchString(words) || !strings.Contains(text, words) {
			t.Errorf("%s: %q, wanted %q; a person reads\n%s", m, words, pattern, text)
		}
		t.Logf("drift of %s: %s", m, words)
	}
	if len(planned) != 1 {
		t.Errorf("the plan changes more than etcd:\n%s", text)
	}
	at := time.Now()
	w.Apply(t, "drift.tfplan")
	t.Logf("databases repaired in %s", time.Since(at).Round(time.Millisecond))
	leads := 0
	for _, m := range controllers {
		d := w.database(t, m)
		t.Logf("%s: %d bytes, %d in use", m, d.Status.Size, d.Status.InUse)
		if d.Status.Size > 40<<20 {
			t.Errorf("%s has %d bytes", m, d.Status.Size)
		}
		if d.Status.Leader == d.Status.Header.Member {
			leads++
		}
	}
	if leads != 1 {
		t.Errorf("%d members lead", leads)
	}
	now := w.Units(t)
	for unit, before := range started { // managers exit when they cannot renew their lease
		if strings.HasSuffix(unit, "/etcd") || strings.HasSuffix(unit, "/kube-apiserver") {
			if now[unit] != before {
				t.Errorf("%s was restarted", unit)
			}
		}
	}
	w.NoChanges(t)
}

// testQuotaTooLarge: a quota that no file system here can hold is refused before anything changes.
func (w *world) testQuotaTooLarge(t *testing.T) {
	quota := func(mib int) {
		harness.Must[struct{}](t)(struct{}{}, w.WS.WriteFile("quota_override.tf", fmt.Sprintf(smallQuota, mib)))
	}
	started := w.Units(t)
	quota(8 << 20)
	_, err := w.WS.Apply(t.Context())
	if err == nil {
		t.Error("it was applied")
	} else {
		harness.Says(t, err.Error(), "with a quota of 8192 GiB", "for the database; set quota_mib to at most", "or enlarge the volume")
	}
	compareStarts(t, started, w.Units(t), nil)
	quota(quotaMiB)
	w.NoChanges(t)
}
