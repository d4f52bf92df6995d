package addon

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet/fleettest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

func configMaps(names ...string) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, name := range names {
		out = append(out, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "default"}}})
	}
	return out
}

// TestPlanAsksAnother checks that another API server is asked when one does not answer, and that an
// unanswered question gives a warning and plans nothing.
func TestPlanAsksAnother(t *testing.T) {
	for _, tt := range []struct {
		name    string
		servers []http.HandlerFunc
		hangs   string // the path at which the caller gives up, since no server answers; empty: one answers
	}{
		{"all well", []http.HandlerFunc{fleettest.Serves}, ""},
		{"one hangs", []http.HandlerFunc{fleettest.Hangs, fleettest.Serves}, ""},
		{"one hangs once it has said that it is ready", []http.HandlerFunc{fleettest.HangsAfterReady, fleettest.Serves}, ""},
		{"one fails", []http.HandlerFunc{fleettest.Fails(503, "ServiceUnavailable"), fleettest.Serves}, ""},
		{"all hang", []http.HandlerFunc{fleettest.Hangs}, "/readyz"},
		{"all hang once they have said that they are ready", []http.HandlerFunc{fleettest.HangsAfterReady}, "/api"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(patience.With(t.Context(), 30), time.Minute)
			defer cancel()
			s := fleettest.NewAPIServers(t, fleettest.At(tt.hangs, cancel, tt.servers...)...)
			start := time.Now()
			seen, err := Addon{API: s.API, Name: "a", Objects: configMaps("a", "missing")}.Observe(ctx, s.Fleet, nil)
			drift, unjudged := seen.Drift, seen.Unjudged
			if took := time.Since(start); tt.hangs != "" && took > 14*time.Second {
				t.Errorf("took %s, as if it waited for an answer", took)
			}
			warning := finding.Words(unjudged)
			switch {
			case err != nil:
				t.Error(err)
			case (tt.hangs == "") != (warning == ""), tt.hangs != "" && !strings.Contains(warning, "context canceled"):
				t.Errorf("warning %q", warning)
			case tt.hangs != "" && len(drift) > 0:
				t.Errorf("drift %v of what could not be seen", drift)
			case tt.hangs == "" && len(drift) != 1:
				t.Errorf("drift %v, want one", drift)
			}
		})
	}
}

// TestSharedObject: two addons with one common object both converge, and the one that was applied
// last has it. Only the claim's holder removes it, and the other one misses it then.
func TestSharedObject(t *testing.T) {
	const path = "/api/v1/namespaces/default/configmaps/a"
	var mu sync.Mutex
	var live map[string]any
	s := fleettest.NewAPIServers(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == path && r.Method == http.MethodPatch {
			body, _ := io.ReadAll(r.Body)
			var now map[string]any
			if err := json.Unmarshal(body, &now); err != nil {
				t.Error(err)
			}
			if r.URL.Query().Get("dryRun") == "" {
				live = now
			}
			_ = json.NewEncoder(w).Encode(now)
			return
		}
		if r.URL.Path != path || live == nil {
			if r.URL.Path == path {
				r.URL.Path = "/missing"
			}
			fleettest.Serves(w, r)
			return
		}
		_ = json.NewEncoder(w).Encode(live)
		if r.Method == http.MethodDelete {
			live = nil
		}
	})
	addon := func(claim string) Addon {
		return Addon{API: s.API, Name: claim, Claim: claim, Objects: configMaps("a")}
	}
	inventory := kube.RefsOf(configMaps("a"))
	drift := func(a Addon) string {
		t.Helper()
		seen, err := a.Observe(t.Context(), s.Fleet, inventory)
		if err != nil || len(seen.Unjudged) > 0 {
			t.Fatal(err, seen.Unjudged)
		}
		return finding.Words(seen.Drift)
	}
	first, second := addon("first"), addon("second")
	for _, a := range []Addon{first, second} {
		if got := drift(a); a.Claim == "first" && !strings.Contains(got, "missing") {
			t.Errorf("before it is applied: %q", got)
		}
		if _, err := a.Apply(t.Context(), s.Fleet, nil); err != nil {
			t.Fatal(err)
		}
	}
	if got := drift(first) + drift(second); got != "" {
		t.Errorf("the drift of both is %q", got)
	}
	changed := addon("first")
	changed.Objects[0].Object["data"] = map[string]any{"x": "y"}
	if got := drift(changed); !strings.Contains(got, "data") || !strings.Contains(got, "claim") {
		t.Errorf("the drift of what differs otherwise is %q", got)
	}
	for _, claim := range []any{nil, ""} {
		mu.Lock()
		metadata := live["metadata"].(map[string]any) //nolint:forcetypeassert // it was applied so
		had := metadata["annotations"]
		metadata["annotations"] = map[string]any{claimAnnotation: claim, "other": "x"}
		if claim == nil {
			delete(metadata, "annotations")
		}
		mu.Unlock()
		if got := drift(first); got == "" {
			t.Errorf("no drift without a claim (%v)", claim)
		}
		mu.Lock()
		metadata["annotations"] = had
		mu.Unlock()
	}
	// The replaced addon is removed after the new one was applied.
	if kept, err := first.Remove(t.Context(), s.Fleet, inventory); err != nil || len(kept) != 1 || live == nil {
		t.Errorf("kept %v, %v", kept, err)
	}
	if kept, err := second.Remove(t.Context(), s.Fleet, inventory); err != nil || len(kept) != 0 || live != nil {
		t.Errorf("kept %v, %v", kept, err)
	}
	if got := drift(first); !strings.Contains(got, "missing") {
		t.Errorf("after the removal by the other one: %q", got)
	}
}

// TestAddonRefused checks that an answer that would be the same from every server is an error, not
// a warning.
func TestAddonRefused(t *testing.T) {
	s := fleettest.NewAPIServers(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/a") {
			fleettest.Fails(400, "BadRequest")(w, r)
			return
		}
		fleettest.Serves(w, r)
	})
	seen, err := Addon{API: s.API, Name: "a", Objects: configMaps("a")}.Observe(t.Context(), s.Fleet, nil)
	if err == nil || !strings.Contains(err.Error(), "BadRequest") || len(seen.Unjudged) > 0 {
		t.Errorf("error = %v, seen = %v", err, seen)
	}
	if !kube.Unanswered(context.DeadlineExceeded) || kube.Unanswered(nil) || kube.Unanswered(err) {
		t.Error("an answer is taken for none")
	}
}

func TestStale(t *testing.T) {
	ref := func(kind, name string) kube.ObjectRef {
		return kube.ObjectRef{APIVersion: "v1", Kind: kind, Name: name}
	}
	got := Addon{}.stale([]kube.ObjectRef{ref("ConfigMap", "old"), ref("ConfigMap", "kept")})
	if len(got) != 2 {
		t.Errorf("stale = %v, wanted everything when nothing is wanted", got)
	}
}

// TestPresentRuns: a Job that had finished still counts as done when somebody has made it again, unless
// the apply may have made it anew.
func TestPresentRuns(t *testing.T) {
	ref := kube.ObjectRef{APIVersion: "batch/v1", Kind: "Job", Namespace: "x", Name: "migrate"}
	a := Addon{Runs: []kube.JobRun{{Ref: ref, UID: "a", Finished: true}}}
	running := []kube.JobRun{{Ref: ref, UID: "b"}}
	if got := a.present(running); len(got) != 1 || !got[0].Finished || running[0].Finished {
		t.Errorf("the runs are %v", got)
	}
	a.Replace = []kube.ObjectRef{ref}
	if got := a.present(running); len(got) != 1 || got[0].Finished {
		t.Errorf("the runs after a replacement are %v", got)
	}
}
