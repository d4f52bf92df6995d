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
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

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
		{"all hang", []http.HandlerFunc{fleettest.Hangs}, "/api/v1/nodes"},
		{"all hang once they have said that they are ready", []http.HandlerFunc{fleettest.HangsAfterReady}, "/api/v1/nodes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(patience.With(t.Context(), 30), time.Minute)
			defer cancel()
			s := fleettest.NewAPIServers(t, fleettest.At(tt.hangs, cancel, tt.servers...)...)
			start := time.Now()
			r := rollout.Report{}
			want := Pool{Endpoint: s.API.Endpoint, Targets: []fleet.Target{
				{Node: component.Node{Name: "worker-0"}}, {Node: component.Node{Name: "worker-1"}}}}
			a := s.Fleet.Access(s.API.PKI)
			defer a.Close()
			if err := nodeDrift(ctx, a, want, &r); err != nil {
				r.CannotJudge(finding.Nodes, "", err)
			}
			if took := time.Since(start); tt.hangs != "" && took > 14*time.Second {
				t.Errorf("took %s, as if it waited for an answer", took)
			}
			warning := finding.Words(r.Unjudged)
			switch {
			case (tt.hangs == "") != (warning == ""), tt.hangs != "" && !strings.Contains(warning, "context canceled"):
				t.Errorf("warning %q", warning)
			case tt.hangs != "" && len(r.Findings) > 0:
				t.Errorf("drift %v of what could not be seen", r.Findings)
			case tt.hangs == "" && len(r.Findings) != 1:
				t.Errorf("drift %v, want one", r.Findings)
			}
		})
	}
}
