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
)

// TestPodErrorLog reads logs from an API server that keeps none of an earlier
// run, and from one whose kubelet does not answer. The wait has ended by then.
func TestPodErrorLog(t *testing.T) {
	crash := Trouble{Namespace: "default", Pod: "web-1", Container: "c", Reason: crashLoopBackOff, Ran: true}
	for _, tt := range []struct {
		name    string
		trouble Trouble
		earlier bool // there is a log of the earlier run
		up      bool
		asked   []string // values of "previous"
		log     []string
		unread  string
	}{
		{"of the run that ended", crash, true, true, []string{"true"}, []string{"earlier", "run"}, ""},
		{"of the present run", crash, false, true, []string{"true", ""}, []string{"this run"}, ""},
		{"not to be read", crash, false, false, []string{"true", ""}, nil, `an error on the server ("kubelet is away")`},
		{"of a container that is not ready", Trouble{Namespace: "default", Pod: "web-1", Container: "c", Reason: notReady, Ran: true}, true, true, []string{""}, []string{"this run"}, ""},
		{"of what never ran", Trouble{Namespace: "default", Pod: "web-1", Reason: "ImagePullBackOff"}, true, true, nil, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var asked []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				q := r.URL.Query()
				asked = append(asked, q.Get("previous"))
				if r.URL.Path != "/api/v1/namespaces/default/pods/web-1/log" || q.Get("container") != "c" || q.Get("tailLines") != "10" || q.Get("limitBytes") != "65536" {
					t.Errorf("asked for %s", r.URL)
				}
				switch {
				case !tt.up:
					http.Error(w, "kubelet is away", http.StatusBadGateway)
				case q.Get("previous") == "true" && !tt.earlier:
					http.Error(w, "previous terminated container not found", http.StatusBadRequest)
				case q.Get("previous") == "true":
					_, _ = w.Write([]byte("earlier\nrun\n"))
				default:
					_, _ = w.Write([]byte("this run"))
				}
			}))
			defer server.Close()
			typed, err := kubernetes.NewForConfig(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
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
