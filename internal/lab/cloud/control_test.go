package cloud_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
)

func TestControlEndpoint(t *testing.T) {
	l := cloudtest.New(t)
	s := l.NewSite(t)
	l.Run(t, s.RunInput())
	var state struct {
		Instances []struct{ ID, State string }
		VPCs      []struct{ ID string } `json:"vpcs"`
		Total     int
	}
	l.Control(t, http.MethodGet, "/_lab/state", nil, &state)
	if len(state.Instances) != 1 || state.Instances[0].State != "running" || len(state.VPCs) != 1 || state.Total < 8 {
		t.Errorf("state: %+v", state)
	}
	calls := func() map[string]int {
		got := map[string]int{}
		l.Control(t, http.MethodGet, "/_lab/calls", nil, &got)
		return got
	}
	if got := calls(); got["RunInstances"] != 1 || got["CreateVpc"] != 1 {
		t.Errorf("calls: %v", got)
	}
	l.Control(t, http.MethodPost, "/_lab/reset-calls", nil, nil)
	if got := calls(); len(got) != 0 {
		t.Errorf("calls after a reset: %v", got)
	}
	var faults []struct{ ID int }
	l.Fault(t, cloudtest.Fields{"kind": "capacity"})
	l.Control(t, http.MethodGet, "/_lab/faults", nil, &faults)
	if len(faults) != 1 || l.Control(t, http.MethodDelete, "/_lab/faults/1", nil, nil) != http.StatusNoContent || l.Control(t, http.MethodDelete, "/_lab/faults/1", nil, nil) != http.StatusNotFound {
		t.Errorf("faults: %+v", faults)
	}
}

// TestInstanceEndpoint: the endpoint for instances has the AWS APIs only, and asks everybody for a
// signature.
func TestInstanceEndpoint(t *testing.T) {
	l := cloudtest.New(t)
	for _, r := range []*http.Request{
		httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/_lab/state", nil),
		httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/_lab/iam", nil),
		httptest.NewRequestWithContext(context.Background(), http.MethodPut, "/_lab/iam/users/me", strings.NewReader(`{"policies":[]}`)),
		httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/?Action=DescribeInstances&Version=2016-11-15", nil),
		httptest.NewRequestWithContext(context.Background(), http.MethodGet, "/_lab/state?Action=DescribeInstances&Version=2016-11-15", nil),
	} {
		w := httptest.NewRecorder()
		l.Account.API().ServeHTTP(w, r)
		if body := w.Body.String(); w.Code < 400 || !strings.Contains(body, "AuthFailure") && !strings.Contains(body, "MissingAction") {
			t.Errorf("%s %s: %d %s", r.Method, r.URL, w.Code, body)
		}
	}
	if users, _ := l.Account.Identities().List(); len(users) != 0 {
		t.Errorf("it made %v", users)
	}
}

// TestProfileControl manages profiles over the control endpoint.
func TestProfileControl(t *testing.T) {
	l := cloudtest.New(t)
	role := map[string]string{"role": "node"}
	if status := l.Control(t, http.MethodPut, "/_lab/iam/instance-profiles/p", role, nil); status != http.StatusBadRequest {
		t.Errorf("with a role that does not exist: %d", status)
	}
	l.Control(t, http.MethodPut, "/_lab/iam/roles/node", map[string][]string{"policies": {cloudtest.LookOnly}}, nil)
	if status := l.Control(t, http.MethodPut, "/_lab/iam/instance-profiles/a%2Fb", role, nil); status != http.StatusBadRequest {
		t.Errorf("with a bad name: %d", status)
	}
	var made, again iam.Profile
	l.Control(t, http.MethodPut, "/_lab/iam/instance-profiles/p", role, &made)
	l.Control(t, http.MethodPut, "/_lab/iam/instance-profiles/p", role, &again)
	if made != again || made.ARN != "arn:aws:iam::123456789012:instance-profile/p" || made.Role != "node" || !strings.HasPrefix(made.ID, "AIPA") {
		t.Errorf("made %+v, then %+v", made, again)
	}
	if status := l.Control(t, http.MethodDelete, "/_lab/iam/roles/node", nil, nil); status != http.StatusInternalServerError {
		t.Errorf("a role in a profile was deleted: %d", status)
	}
	l.Open(t) // from its files
	var listed struct {
		Profiles []iam.Profile `json:"instance_profiles"`
	}
	l.Control(t, http.MethodGet, "/_lab/iam", nil, &listed)
	if len(listed.Profiles) != 1 || listed.Profiles[0] != made {
		t.Errorf("listed %+v", listed)
	}
	for path, want := range map[string]int{"instance-profiles/p": 204} {
		if status := l.Control(t, http.MethodDelete, "/_lab/iam/"+path, nil, nil); status != want {
			t.Errorf("delete %s: %d", path, status)
		}
	}
	if status := l.Control(t, http.MethodDelete, "/_lab/iam/instance-profiles/p", nil, nil); status != http.StatusNotFound {
		t.Errorf("deleted twice: %d", status)
	}
	if status := l.Control(t, http.MethodDelete, "/_lab/iam/roles/node", nil, nil); status != http.StatusNoContent {
		t.Errorf("the role then: %d", status)
	}
}
