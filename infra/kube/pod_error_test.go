package kube

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// TestPodErrorLog reads logs of containers in several states after the wait's context has ended.
func TestPodErrorLog(t *testing.T) {
	crash := Trouble{Namespace: "default", Pod: "web-1", Container: "c", Reason: crashLoopBackOff, Ran: true}
	for _, tt := range []struct {
		name    string
		trouble Trouble
		earlier string   // the log of the earlier run
		present string   // ... and of the present one; "down" for no answer
		asked   []string // values of "previous"
		log     []string
		unread  string
	}{
		{"of the run that ended", crash, "earlier", "line one\nline two\n", []string{""}, []string{"line one", "line two"}, ""},
		{"of one that is started again", crash, "earlier", "", []string{"", "true"}, []string{"earlier"}, ""},
		{"of one that was removed", crash, "earlier", logRemoved + "containerd://1", []string{"", "true"}, []string{"earlier"}, ""},
		{"of two that were removed", crash, logRemoved + "containerd://2", logRemoved + "containerd://1", []string{"", "true"}, nil, logRemoved + "containerd://1"},
		{"a log that cannot be read", crash, "down", "down", []string{"", "true"}, nil, `an error on the server ("kubelet is away")`},
		{"of a container that is not ready", Trouble{Namespace: "default", Pod: "web-1", Container: "c", Reason: notReady, Ran: true}, "earlier", "", []string{""}, nil, ""},
		{"of what never ran", Trouble{Namespace: "default", Pod: "web-1", Reason: "ImagePullBackOff"}, "earlier", "x", nil, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var asked []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				q := r.URL.Query()
				asked = append(asked, q.Get("previous"))
				if r.URL.Path != "/api/v1/namespaces/default/pods/web-1/log" || q.Get("container") != "c" || q.Get("tailLines") != "10" || q.Get("limitBytes") != "65536" {
					t.Errorf("asked for %s", r.URL)
				}
				answer := tt.present
				if q.Get("previous") == "true" {
					answer = tt.earlier
				}
				if answer == "down" {
					http.Error(w, "kubelet is away", http.StatusBadGateway)
					return
				}
				_, _ = w.Write([]byte(answer))
			}))
			defer server.Close()
			typed, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(patience.With(t.Context(), 30))
			cancel()
			e := (&Client{typed: typed}).podError(ctx, "", tt.trouble, 0)
			if !slices.Equal(asked, tt.asked) || !slices.Equal(e.Log, tt.log) {
				t.Errorf("asked %q, log %q; wanted %q, %q", asked, e.Log, tt.asked, tt.log)
			}
			if (e.Unread != nil) != (tt.unread != "") || e.Unread != nil && !strings.Contains(e.Error(), "\nits log could not be read: "+tt.unread) {
				t.Errorf("%v, wanted %q", e, tt.unread)
			}
		})
	}
}
