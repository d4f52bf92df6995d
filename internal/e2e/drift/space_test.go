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
const quotaMiB = 128

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

// databases returns what etcdctl says of each member, in the order of controllers.
func (w *world) databases(t *testing.T) (all []database, err error) {
	t.Helper()
	for _, m := range controllers {
		out, err := w.TrySh(t.Context(), m, etcdctl+"endpoint status -w json")
		if err != nil {
			return nil, err
		}
		var found []database
		if err := json.Unmarshal([]byte(out), &found); err != nil || len(found) != 1 {
			return nil, fmt.Errorf("%s: %s, %w", m, out, err)
		}
		all = append(all, found[0])
	}
	return all, nil
}

// fill writes values of a MiB to etcd until it has no space or n are there, and returns etcd's answer to
// the last one. After another error, such as in an election, it tries again.
func (w *world) fill(t *testing.T, prefix string, n int) string {
	t.Helper()
	return w.Sh(t, "controller-0", fmt.Sprintf(`head -c 750000 /dev/urandom | base64 -w 0 > /tmp/value
i=1 failed=0
while [ $i -le %d ]; do
	if said=$(%sput %s/$i < /tmp/value 2>&1); then i=$((i+1)); continue; fi
	case $said in *'database space exceeded'*) break ;; esac
	failed=$((failed+1)); [ $failed -lt 30 ] || break
	sleep 1
done
echo "$said" | tail -n 1`, n, etcdctl, prefix))
}

// controllers are the machines of etcd's members.
var controllers = []string{"controller-0", "controller-1", "controller-2"}

// testFull: etcd refuses to store anything. The plan names the alarms, an apply repairs etcd, and the
// cluster stores again.
func (w *world) testFull(t *testing.T) {
	if said := w.fill(t, "/fill", 300); !strings.Contains(said, "database space exceeded") {
		t.Fatalf("filling ended with %q", said)
	}
	w.etcd(t, "controller-0", etcdctl+"del --prefix /fill/") // it deletes; the space stays used until a compaction
	w.repairSpace(t, `etcd alarm NOSPACE: [0-9.]+ MiB of quota 128 MiB, [0-9.]+ MiB hold data, and nothing more is stored`)
	w.storesAgain(t)
}

// testFragmented: the databases are mostly free. The plan names them, and the apply defragments one
// after the other.
func (w *world) testFragmented(t *testing.T) {
	if said := w.fill(t, "/fill", 80); strings.TrimSpace(said) != "OK" {
		t.Fatalf("filling ended with %q", said)
	}
	w.emptied(t)
	w.repairSpace(t, `etcd database: [0-9.]+ MiB of quota 128 MiB, [0-9.]+ MiB free inside, wants defragmentation`)
}

// testFullOfData: an apply fails as long as the data take the quota, and says what to do. Then a
// larger quota rolls through members that all have the alarm. When the data are deleted, the
// databases are mostly free.
func (w *world) testFullOfData(t *testing.T) {
	w.fillUp(t)
	if _, err := w.WS.Apply(t.Context()); err == nil {
		t.Fatal("a database full of data was repaired")
	} else {
		harness.Says(t, err.Error(), "refusing to disarm the alarm NOSPACE of etcd: the data fill the quota", "raise quota_mib, or delete objects that nobody needs")
	}
	started := w.Units(t)
	w.quota(t, 2*quotaMiB)
	w.Apply(t)
	var rolled []string
	now := w.Units(t)
	for _, m := range controllers {
		rolled = append(rolled, m+"/etcd")
	}
	for unit, before := range started {
		if restarted := now[unit] != before; (strings.HasSuffix(unit, "/etcd") || strings.HasSuffix(unit, "/kube-apiserver")) && restarted != strings.HasSuffix(unit, "/etcd") {
			t.Errorf("%s restarted: %v", unit, restarted)
		}
	}
	harness.OneByOne(t, now, rolled)
	w.storesAgain(t)
	w.emptied(t)
	w.repairSpace(t, `etcd database: [0-9.]+ MiB of quota 256 MiB, [0-9.]+ MiB free inside, wants defragmentation`)
}

// emptied deletes what fill has written, so that most of each file is free.
func (w *world) emptied(t *testing.T) {
	t.Helper()
	w.etcd(t, "controller-0", etcdctl+`del --prefix /fill/ && `+etcdctl+`compact $(`+etcdctl+`endpoint status -w json | grep -o '"revision":[0-9]*' | cut -d: -f2)`)
	eventually(t, "the values are gone", func() error {
		all, err := w.databases(t)
		for i, d := range all {
			if d.Status.InUse > 30<<20 {
				return fmt.Errorf("%s has %d bytes in use", controllers[i], d.Status.InUse)
			}
		}
		return err
	})
}

// fillUp writes to etcd until it raises the alarm NOSPACE. While it is written to, a part of the file
// is free: it is filled a second time without that part.
func (w *world) fillUp(t *testing.T) {
	t.Helper()
	for round := range 2 {
		if said := w.fill(t, fmt.Sprintf("/fill/%d", round), 300); !strings.Contains(said, "database space exceeded") {
			t.Fatalf("filling ended with %q", said)
		}
		if round > 0 {
			continue
		}
		for _, m := range controllers {
			w.etcd(t, m, etcdctl+"defrag")
		}
		w.etcd(t, "controller-0", etcdctl+"alarm disarm")
	}
}

// storesAgain checks that etcd has no alarm and the cluster stores and comes back.
func (w *world) storesAgain(t *testing.T) {
	t.Helper()
	if alarms := w.etcd(t, "controller-0", etcdctl+"alarm list"); strings.TrimSpace(alarms) != "" {
		t.Errorf("alarms: %s", alarms)
	}
	w.Create(t, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "stored-again", "namespace": "default"}}`)
	w.Kubectl(t, "delete", "--ignore-not-found", "configmap", "stored-again")
	w.Kubectl(t, "wait", "--for=condition=Ready", "--timeout=3m", "nodes", "--all")
}

// quota sets the quota in the configuration.
func (w *world) quota(t *testing.T, mib int) {
	t.Helper()
	if err := w.WS.WriteFile("quota_override.tf", fmt.Sprintf(smallQuota, mib)); err != nil {
		t.Fatal(err)
	}
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
	for thing, words := range drift {
		words := fmt.Sprint(words)
		if !regexp.MustCompile("^(?:"+pattern+"|etcd database: .* wants defragmentation)$").MatchString(words) || !strings.Contains(text, words) {
			t.Errorf("%s: %q, wanted %q; a person reads\n%s", thing, words, pattern, text)
		}
		t.Logf("drift of %s: %s", thing, words)
	}
	if len(drift) == 0 || !regexp.MustCompile(pattern).MatchString(fmt.Sprint(drift)) || len(planned) != 1 {
		t.Errorf("the plan changes something else than etcd, or says nothing of it:\n%s", text)
	}
	at := time.Now()
	w.Apply(t, "drift.tfplan")
	t.Logf("databases repaired in %s", time.Since(at).Round(time.Millisecond))
	var all []database
	harness.Eventually(t, time.Minute, "the members agree who leads", func() (err error) {
		all, err = w.databases(t)
		leads := 0
		for _, d := range all {
			if d.Status.Leader != all[0].Status.Leader {
				return fmt.Errorf("they do not: %+v", all)
			}
			if d.Status.Leader == d.Status.Header.Member {
				leads++
			}
		}
		if err == nil && leads != 1 {
			err = fmt.Errorf("%d members lead: %+v", leads, all)
		}
		return err
	})
	for i, d := range all {
		t.Logf("%s: %d bytes, %d in use", controllers[i], d.Status.Size, d.Status.InUse)
		if d.Status.Size > 40<<20 {
			t.Errorf("%s has %d bytes", controllers[i], d.Status.Size)
		}
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
	started := w.Units(t)
	w.quota(t, 8<<20)
	if _, err := w.WS.Apply(t.Context()); err == nil {
		t.Error("it was applied")
	} else {
		harness.Says(t, err.Error(), "with a quota of 8192 GiB", "for the database; set quota_mib to at most", "or enlarge the volume")
	}
	compareStarts(t, started, w.Units(t), nil)
	w.quota(t, quotaMiB)
	w.NoChanges(t)
}
