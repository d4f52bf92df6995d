package machines

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// TestStagedChecksums: a missing checksum is no reason to leave out other downloads, and no
// checksum is looked up twice.
func TestStagedChecksums(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	mirror := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if path.Base(r.URL.Path) != "kubelet.sha256" {
			http.NotFound(w, r)
			return
		}
		time.Sleep(50 * time.Millisecond) // the others have failed by now
		_, _ = io.WriteString(w, strings.Repeat("a", 64))
	}))
	defer mirror.Close()
	catalog, err := artifact.NewCatalog(mirror.URL, strings.NewReader(""), mirror.Client())
	if err != nil {
		t.Fatal(err)
	}
	var staged session.StagedChecksums
	for range 2 {
		state, err := staging(patience.With(t.Context(), 12), &staged, catalog, infraaws.RoleWorker, true, component.Releases{Kubernetes: "1.36.4"})
		var known []string
		for _, b := range state.Binaries {
			if b.SHA256 != "" {
				known = append(known, path.Base(b.URL))
			}
		}
		if fmt.Sprint(known) != "[kubelet]" {
			t.Errorf("known: %v; %v", known, err)
		}
		if n := asked.Load(); n != 5 {
			t.Errorf("%d checksums were looked up", n)
		}
	}
}
