package workerpool

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet/fleettest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// TestPlanAsksAnother checks that another API server is asked when one does not answer, and that an
// unanswered question gives a warning and plans nothing.
func TestPlanAsksAnother(t *testing.T) {
	for _, tt := range []struct {
		name    string
		servers []http.HandlerFunc
		limit   time.Duration // what the caller gives
		within  time.Duration
		warning string // empty: a server answered
	}{
		{"all well", []http.HandlerFunc{fleettest.Serves}, time.Minute, fleet.AnswerShare, ""},
		{"one hangs", []http.HandlerFunc{fleettest.Hangs, fleettest.Serves}, time.Minute, 2*fleet.AnswerShare + time.Second, ""},
		{"one hangs once it has said that it is ready", []http.HandlerFunc{fleettest.HangsAfterReady, fleettest.Serves}, time.Minute, 2*fleet.AnswerShare + time.Second, ""},
		{"one fails", []http.HandlerFunc{fleettest.Fails(503, "ServiceUnavailable"), fleettest.Serves}, time.Minute, fleet.AnswerShare + 2*time.Second, ""},
		{"all hang", []http.HandlerFunc{fleettest.Hangs}, time.Second, 2 * time.Second, "gave no answer: context deadline exceeded"},
		{"all hang once they have said that they are ready", []http.HandlerFunc{fleettest.HangsAfterReady}, time.Second, 2 * time.Second, "gave no answer: context deadline exceeded"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := fleettest.NewAPIServers(t, tt.servers...)
			ctx, cancel := context.WithTimeout(t.Context(), tt.limit)
			defer cancel()
			start := time.Now()
			r := rollout.Report{}
			want := Pool{Endpoint: s.API.Endpoint, Targets: []fleet.Target{
				{Node: component.Node{Name: "worker-0"}}, {Node: component.Node{Name: "worker-1"}}}}
			a := s.Fleet.Access(s.API.PKI)
			defer a.Close()
			if err := nodeDrift(ctx, a, want, &r); err != nil {
				r.CannotJudge(finding.Nodes, "", err)
			}
			if took := time.Since(start); took > tt.within {
				t.Errorf("took %s, %s at most", took, tt.within)
			}
			warning := finding.Words(r.Unjudged)
			switch {
			case tt.warning == "" && warning != "", !strings.Contains(warning, tt.warning):
				t.Errorf("warning %q, want %q", warning, tt.warning)
			case tt.warning != "" && len(r.Findings) > 0:
				t.Errorf("drift %v of what could not be seen", r.Findings)
			case tt.warning == "" && len(r.Findings) != 1:
				t.Errorf("drift %v, want one", r.Findings)
			}
		})
	}
}
