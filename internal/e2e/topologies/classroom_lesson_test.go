package topologies_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/harness"
)

// testLesson begins a lesson for all students, and once more for one of them: her cluster has what it had at the beginning.
func (l *class) testLesson(t *testing.T) {
	l.may(t, "ada", "create", "configmap", "start", "--from-literal=lesson=1")
	l.set(t, "lesson", "1")
	took := regexp.MustCompile(`^module\.student\["(ada|bob|cy)"\]\.(k8s_etcd_backup\.this|terraform_data\.snapshot)\[0\]$`)
	changed := l.changed(t)
	if len(changed) != 6 || slices.ContainsFunc(changed, func(at string) bool { return !took.MatchString(at) }) {
		t.Errorf("a lesson begins, and the plan changes %q", changed)
	}
	began := time.Now()
	l.apply(t, "lesson", "1")
	t.Logf("a snapshot of each cluster in %s", time.Since(began).Round(time.Second))
	l.NoChanges(t)
	l.writeLesson(t, "1")

	l.may(t, "ada", "create", "configmap", "later")
	l.may(t, "ada", "delete", "configmap", "start")
	l.may(t, "ada", "delete", "deployment", "web")
	l.may(t, "ada", "wait", "--for=delete", "pods", "--selector=app=web", "--timeout=90s")
	cy := l.working(t, "cy")
	l.set(t, "back_to_lesson", map[string]string{"ada": "1"})
	if changed := l.only(t, "ada"); len(changed) != 1 || changed[0] != `module.student["ada"].k8s_etcd_cluster.this["1"]` {
		t.Errorf("Ada goes back, and the plan changes %q", changed)
	}
	began = time.Now()
	l.apply(t, "back_to_lesson", map[string]string{"ada": "1"})
	t.Logf("back at the beginning of the lesson in %s", time.Since(began).Round(time.Second))
	harness.Eventually(t, time.Minute, "Ada's cluster has what it had", func() error {
		_, err := l.as(t, "ada", "get", "configmap", "start")
		return err
	})
	l.NoChanges(t)
	if n := cy.Failures(t); n > 0 {
		t.Errorf("Cy noticed it: %d requests failed", n)
	}
	_, err := l.as(t, "ada", "get", "configmap", "later")
	harness.Refused(t, err, "NotFound")
	l.may(t, "ada", "rollout", "status", "deployment/web", "--timeout=120s")
	l.may(t, "ada", "rollout", "restart", "deployment/web") // the cluster works, and does not only show what it had
	l.may(t, "ada", "rollout", "status", "deployment/web", "--timeout=120s")
	l.may(t, "ada", "wait", "--for=condition=Ready", "nodes", "--all", "--timeout=60s")
	l.NoChanges(t)
}

// writeLesson keeps the names of the present snapshots, as the guide says.
func (l *class) writeLesson(t *testing.T, lesson string) {
	t.Helper()
	var snapshots map[string]string
	if err := l.WS.Output(t.Context(), "snapshots", &snapshots); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(l.WS.Dir, "lessons")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, lesson+".json"), harness.Must[[]byte](t)(json.Marshal(snapshots)), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Logf("snapshots %v", snapshots)
}
