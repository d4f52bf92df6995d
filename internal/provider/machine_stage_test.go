package provider

import (
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// stagingScript matches the packed script in user data.
var stagingScript = regexp.MustCompile(`printf %s ([A-Za-z0-9+/=]+) `)

// staging returns the script that a machine got to stage what its roles will install; empty if it got
// none.
func (c cloud) staging(t *testing.T, machine *instance) string {
	t.Helper()
	// YAML breaks long lines between words.
	found := stagingScript.FindStringSubmatch(strings.Join(strings.Fields(c.userData(machine)), " "))
	if found == nil {
		return ""
	}
	packed, err := base64.StdEncoding.DecodeString(found[1])
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(strings.NewReader(string(packed)))
	if err != nil {
		t.Fatal(err)
	}
	script, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}

// TestStage checks what a new machine is told to fetch, and that stage matters only then: it is never a
// change, whatever becomes of it.
func TestStage(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	var sums strings.Builder
	for n, line := range strings.Split(strings.TrimSpace(downloads), "\n") { // one for each file
		fmt.Fprintf(&sums, "%064x  %s\n", n, strings.Fields(line)[1])
	}
	c.more = values{"artifact_checksums": sums.String(), "artifact_mirror": "http://mirror.example.com"} // one that is not asked for checksums
	c = c.process(t)
	network := c.instance("k8s_network")
	network.must(networkConfig())
	everything := values{"kubernetes_version": "1.36.4", "etcd_version": "3.6.16"}
	for _, tt := range []struct {
		name, role string
		stage      values
		has        []string
		lacks      []string
	}{
		{"controller-0", "controller", everything, []string{"/etcd-v3.6.16-linux-amd64.tar.gz", "/kube-apiserver", "/kube-controller-manager", "/kube-scheduler"}, []string{"/kubelet", "haproxy"}},
		{"worker-1", "worker", everything, []string{"/kubelet", "/kube-proxy", "/containerd-2.3.7-linux-amd64.tar.gz", "/runc.amd64", "/cni-plugins", "stage_packages 'nftables'"}, []string{"/kube-apiserver", "/etcd-"}},
		{"worker-4", "worker", with(everything, values{"kube_proxy": false}), []string{"/kubelet", "/runc.amd64"}, []string{"/kube-proxy"}},
		{"lb-0", "lb", values{}, []string{"stage_packages 'haproxy'"}, []string{"stage_program '"}},
		// The checksums of Kubernetes 1.35.8 are not known.
		{"controller-1", "controller", values{"kubernetes_version": "1.35.8", "etcd_version": "3.6.16"}, []string{"/etcd-v3.6.16"}, []string{"/kube-apiserver"}},
		{"controller-2", "controller", values{"kubernetes_version": "1.35.8"}, nil, nil},
		{"controller-3", "controller", nil, nil, nil},
	} {
		machine := c.instance("k8s_machine")
		config := func(stage any) values {
			return values{"name": tt.name, "role": tt.role, "network": network.get("ref"), "stage": stage}
		}
		var stage any
		if tt.stage != nil {
			stage = tt.stage
		}
		machine.must(config(stage))
		script := c.staging(t, machine)
		if (script == "") != (tt.has == nil) {
			t.Errorf("%s: a script of %d bytes", tt.name, len(script))
		}
		for _, s := range tt.has {
			if !strings.Contains(script, s) {
				t.Errorf("%s does not stage %s", tt.name, s)
			}
		}
		for _, s := range tt.lacks {
			if strings.Contains(script, s) {
				t.Errorf("%s stages %s", tt.name, s)
			}
		}
		imported := c.instance("k8s_machine")
		imported.imports(machine.get("id").(string))
		for _, later := range []any{stage, nil, values{"kubernetes_version": "1.37.1"}, values{"containerd_version": "2.2.0"}} {
			machine.settled(config(later))
			imported.settled(config(later))
		}
		if got := machine.get("stage"); got != nil {
			t.Errorf("%s: the state has stage: %v", tt.name, got)
		}
	}
	// With user data of others it replaces no bootcmd.
	machine := c.instance("k8s_machine")
	machine.must(values{"name": "worker-2", "role": "worker", "network": network.get("ref"), "stage": everything, "user_data": userScript})
	if script, data := c.staging(t, machine), c.userData(machine); !strings.Contains(script, "/kubelet") || strings.Contains(data, "bootcmd") || !strings.Contains(data, userScript) {
		t.Errorf("with user_data it stages\n%s\nby\n%s", script, data)
	}
	long := c.instance("k8s_machine")
	ch := long.plan(values{"name": "worker-3", "role": "worker", "network": network.get("ref"), "stage": everything, "user_data": "#!" + strings.Repeat("x", 14<<10)})
	if said := long.carryOut(ch); len(said.errors) > 0 || !strings.Contains(change{errors: said.warnings}.failure(), "user_data and the SSH keys") || c.staging(t, long) != "" {
		t.Errorf("with long user_data: %v, %v", said.errors, said.warnings)
	}
}

// TestStageIsChecked: what cannot be staged is a warning on its attribute, and no error.
func TestStageIsChecked(t *testing.T) {
	t.Parallel()
	machine := offlineCore(t).instance("k8s_machine")
	for name, bad := range map[string]string{
		"kubernetes_version": "1.2.3", "etcd_version": "3.4.0", "containerd_version": "1.7.0", "runc_version": "latest", "cni_plugins_version": "v",
	} {
		said := machine.plan(values{"name": "worker-0", "role": "worker", "network": unknown, "stage": values{name: bad}})
		if got := (change{errors: said.warnings}).failure(); !strings.HasPrefix(got, `"stage").AttributeName("`+name+`"): Not staged: `) || !strings.Contains(got, bad) || len(said.errors) > 0 {
			t.Errorf("%s = %q: %q, %s", name, bad, got, said.failure())
		}
		if got := machine.plan(values{"name": "worker-0", "role": "worker", "network": unknown, "stage": values{name: unknown}}).failure(); got != "" {
			t.Errorf("unknown %s: %s", name, got)
		}
	}
}

// TestStagedChecksums: what has no checksum is no reason to leave out the others, and nothing is looked up twice.
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
		state, err := staging(t.Context(), &staged, catalog, infraaws.RoleWorker, true, component.Releases{Kubernetes: "1.36.4"})
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
