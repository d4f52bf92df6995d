package roles_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestExtraFiles checks what a plan shows of the files of the user, that a write-only content is nowhere, and that a
// second plan is empty.
func TestExtraFiles(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	const secret = "correct horse battery"
	lb := providertest.Values{"host": c.Pool["hosts"].([]any)[0], "controllers": c.Etcd["hosts"], "pki": c.Etcd["pki"]}
	files := func(more providertest.Values) providertest.Values {
		return providertest.Values{"extra_files": providertest.With(providertest.Values{
			"/etc/motd":   providertest.Values{"content": "hello\n", "restarts": []any{"chrony.service"}},
			"/etc/secret": providertest.Values{"content_wo": secret, "content_wo_version": 1},
		}, more)}
	}
	for resource, config := range map[string]providertest.Values{"k8s_etcd_cluster": c.Etcd, "k8s_etcd_backup": c.Backup(), "k8s_control_plane": c.ControlPlane, "k8s_worker_pool": c.Pool, "k8s_lb": lb} {
		with := providertest.With(config, files(nil))
		i := c.Applied(resource, with)
		planned := i.Files()
		if got := fmt.Sprint(planned["/etc/motd"], planned["/etc/secret"]); !strings.Contains(got, "sha256:") || !strings.Contains(got, "content_wo, version 1") {
			t.Errorf("%s: files %s", resource, got)
		}
		if ch := i.Plan(with); !i.Empty(ch) {
			t.Errorf("%s: the second plan is not empty: %s\n%s", resource, ch.Failure(), i.Differences(ch))
		}
		other := i.Plan(providertest.With(config, files(providertest.Values{"/etc/secret": providertest.Values{"content_wo": "other", "content_wo_version": 1}})))
		if !i.Empty(other) {
			t.Errorf("%s: another write-only content of the same version is a change: %s", resource, i.Differences(other))
		}
		next := i.Plan(providertest.With(config, files(providertest.Values{"/etc/secret": providertest.Values{"content_wo": secret, "content_wo_version": 2}})))
		if next.Failure() != "" || i.Empty(next) || strings.Contains(next.Planned.String(), secret) {
			t.Errorf("%s: another version: %q, %v", resource, next.Failure(), next.Planned)
		}
		removed := i.Plan(config)
		values, _ := providertest.Plain(removed.Planned).(providertest.Values)
		if got := providertest.FilesOf(values); removed.Failure() != "" || got == nil || got["/etc/motd"] != nil || got["/etc/secret"] != nil {
			t.Errorf("%s without files: %q %v", resource, removed.Failure(), got)
		}
	}
	for what, test := range map[string]struct {
		path string
		file providertest.Values
		want string
	}{
		"no content":          {"/etc/a", providertest.Values{"mode": "0600"}, "either content or content_wo"},
		"two contents":        {"/etc/a", providertest.Values{"content": "a", "content_wo": secret, "content_wo_version": 1}, "either content or content_wo"},
		"no version":          {"/etc/a", providertest.Values{"content_wo": secret}, "content_wo_version belong together"},
		"a version alone":     {"/etc/a", providertest.Values{"content": "a", "content_wo_version": 1}, "content_wo_version belong together"},
		"setuid":              {"/etc/a", providertest.Values{"content": "a", "mode": "4755"}, "neither setuid"},
		"no mode":             {"/etc/a", providertest.Values{"content": "a", "mode": "rw"}, "octal"},
		"the provider's file": {"/etc/kubernetes/kubelet.yaml", providertest.Values{"content": "a"}, "is a file of the worker"},
		"relative":            {"a", providertest.Values{"content": "a"}, "not absolute"},
		"too large":           {"/etc/a", providertest.Values{"content_wo": strings.Repeat(secret, 4000), "content_wo_version": 1}, "File too large"},
		"another's unit":      {"/etc/a", providertest.Values{"content": "a", "restarts": []any{"etcd.service"}}, "belongs to the etcd"},
		"another's drop-in":   {"/etc/systemd/system/etcd.service.d/a.conf", providertest.Values{"content": "a"}, "changes etcd.service"},
	} {
		got := c.Instance("k8s_worker_pool").Plan(providertest.With(c.Pool, providertest.Values{"extra_files": providertest.Values{test.path: test.file}})).Failure()
		if !strings.Contains(got, test.want) || !strings.HasPrefix(got, fmt.Sprintf(`"extra_files").ElementKeyString(%q)`, test.path)) || strings.Contains(got, secret) {
			t.Errorf("%s: got %q, wanted %q", what, got, test.want)
		}
	}
	for resource, test := range map[string]struct {
		config providertest.Values
		unit   string
	}{"k8s_etcd_cluster": {c.Etcd, "etcd"}, "k8s_etcd_backup": {c.Backup(), "etcd-backup"}, "k8s_control_plane": {c.ControlPlane, "kube-apiserver"}, "k8s_lb": {lb, "haproxy"}} {
		own := providertest.Values{"extra_files": providertest.Values{"/etc/systemd/system/" + test.unit + ".service.d/a.conf": providertest.Values{"content": "[Service]\n", "restarts": []any{test.unit + ".service"}}}}
		if got := c.Instance(resource).Plan(providertest.With(test.config, own)).Failure(); got != "" {
			t.Errorf("%s refuses a drop-in for its own unit: %s", resource, got)
		}
	}
	drop := providertest.Values{"extra_files": providertest.Values{"/etc/systemd/system/kubelet.service.d/a.conf": providertest.Values{"content": "[Service]\n"}}}
	if got := c.Instance("k8s_worker_pool").Plan(providertest.With(c.Pool, drop)).Failure(); got != "" {
		t.Errorf("a drop-in is refused: %q", got)
	}
}

// TestTwoPlacesOfOneFile: a file on a machine belongs to one resource.
func TestTwoPlacesOfOneFile(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	file := providertest.Values{"extra_files": providertest.Values{"/etc/a": providertest.Values{"content": "a"}}}
	same := providertest.With(c.ControlPlane, providertest.Values{"hosts": c.Etcd["hosts"]})
	if got := c.Instance("k8s_etcd_cluster").Plan(providertest.With(c.Etcd, file)).Failure(); got != "" {
		t.Fatal(got)
	}
	if got := c.Instance("k8s_control_plane").Plan(providertest.With(same, file)).Failure(); !strings.HasPrefix(got, `"extra_files").ElementKeyString("/etc/a")`) || !strings.Contains(got, "k8s_etcd_cluster demo also places /etc/a on machine controller-0") {
		t.Errorf("got %q", got)
	}
	if got := c.Instance("k8s_worker_pool").Plan(providertest.With(c.Pool, file)).Failure(); got != "" {
		t.Errorf("the same file on another machine: %q", got)
	}
}
