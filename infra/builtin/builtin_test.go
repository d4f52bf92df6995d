package builtin

import (
	"crypto/rand"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

var demo = component.Cluster{Name: "demo", Domain: "cluster.local", DNSIP: netip.MustParseAddr("10.32.0.10"), PKI: pki.Ref{KubernetesCA: "kubernetes CA\n"}}

func TestObjects(t *testing.T) {
	for _, name := range names() {
		objects, err := Addon{Name: name}.Objects(demo)
		if err != nil {
			t.Fatal(err)
		}
		var docs []string
		for _, o := range objects {
			b, err := yaml.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			for _, noise := range []string{"creationTimestamp", "status:", ": null"} {
				if strings.Contains(string(b), noise) {
					t.Errorf("%s %s has %s", o.GetKind(), o.GetName(), noise)
				}
			}
			docs = append(docs, string(b))
		}
		path, got := filepath.Join("testdata", name+".yaml.golden"), []byte(strings.Join(docs, "---\n"))
		if *update {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s differs (run with -update when that is meant):\n%s", path, diff)
		}
	}
	if _, err := (Addon{Name: coreDNSName}).Objects(component.Cluster{}); err == nil {
		t.Error("cluster DNS without a domain or an address")
	}
}

func TestEnvironment(t *testing.T) {
	objects, err := Addon{Name: CloudControllers, Environment: map[string]string{"NO_PROXY": "10.0.0.0/8", "HTTPS_PROXY": "http://10.0.0.9:3128", "SSL_CERT_DIR": "/certs"}}.Objects(demo)
	if err != nil {
		t.Fatal(err)
	}
	containers, _, _ := unstructured.NestedSlice(objects[len(objects)-1].Object, "spec", "template", "spec", "containers")
	want := []any{map[string]any{"name": "HTTPS_PROXY", "value": "http://10.0.0.9:3128"}, map[string]any{"name": "NO_PROXY", "value": "10.0.0.0/8"}, map[string]any{"name": "SSL_CERT_DIR", "value": "/certs"}}
	if got := containers[0].(map[string]any)["env"]; !reflect.DeepEqual(got, want) { //nolint:forcetypeassert // so it is
		t.Errorf("env: %v", got)
	}
}

// The addons are rolled when a CA is added or removed, and when another key signs their tokens, but
// not when only the order changes.
func TestRotationRollsAddons(t *testing.T) {
	ref, err := pki.Bootstrap(t.Context(), pki.NewMemoryStore(nil), "demo", time.Now(), rand.Reader, pki.Options{
		Generations: pki.Generations{KubernetesCA: []int{1, 2}, ServiceAccount: []int{1, 2}}})
	if err != nil {
		t.Fatal(err)
	}
	var templates []string
	for _, g := range []pki.Generations{
		{}, {KubernetesCA: []int{1, 2}}, {KubernetesCA: []int{2, 1}}, {KubernetesCA: []int{2}},
		{ServiceAccount: []int{1, 2}}, {ServiceAccount: []int{2, 1}}, {ServiceAccount: []int{2}},
	} {
		at, _ := ref.Arrange(g)
		templates = append(templates, fmt.Sprint(keyAnnotations(at)))
	}
	for i, same := range map[int]int{2: 1, 4: 0, 6: 5} {
		if templates[i] != templates[same] {
			t.Errorf("%d: %s, %d: %s", i, templates[i], same, templates[same])
		}
	}
	for i, other := range map[int]int{1: 0, 3: 2, 5: 4} {
		if templates[i] == templates[other] {
			t.Errorf("%d and %d: %s", i, other, templates[i])
		}
	}
}

func TestAddon(t *testing.T) {
	for _, tt := range []struct {
		addon Addon
		image string // of its pods; empty if there are no objects
		wrong string // field of the error
		says  string
	}{
		{Addon{Name: "coredns"}, "registry.k8s.io/coredns/coredns:v1.15.0", "", ""},
		{Addon{Name: "coredns", Version: "1.14.6"}, "registry.k8s.io/coredns/coredns:v1.14.6", "", ""},
		{Addon{Name: "coredns", Image: "registry.example.com/dns:1"}, "registry.example.com/dns:1", "", ""},
		{Addon{Name: "metrics-server"}, "registry.k8s.io/metrics-server/metrics-server:v0.9.0", "", ""},
		{Addon{Name: "metrics-server", Version: "0.1.2"}, "registry.k8s.io/metrics-server/metrics-server:v0.1.2", "version", "Built in: 0.9.0."},
		{Addon{Name: "coredns", Version: "v1.15.0"}, "registry.k8s.io/coredns/coredns:vv1.15.0", "version", "Built in: 1.15.0, 1.14.6. For another release set image, such as registry.k8s.io/coredns/coredns:v1.15.0."},
		{Addon{Name: "coredns", Image: "a b"}, "a b", "image", "not the name of an image"},
		{Addon{Name: CloudControllers}, "registry.k8s.io/provider-aws/cloud-controller-manager:v1.37.1", "", ""},
		{Addon{Name: LocalPath}, "docker.io/rancher/local-path-provisioner:v0.0.30", "", ""},
		{Addon{Name: "coredns", Environment: map[string]string{"A B": "1"}}, "registry.k8s.io/coredns/coredns:v1.15.0", `environment["A B"]`, `"A B" is not the name of an environment variable`},
		{Addon{Name: "dns"}, "", "name", `"dns" is not built in (cloud-controller-manager, coredns, local-path-provisioner, metrics-server are)`},
	} {
		errs := tt.addon.Check()
		if tt.wrong == "" && len(errs) > 0 || tt.wrong != "" && (len(errs) != 1 || errs[0].Field != tt.wrong || !strings.Contains(errs[0].Error(), tt.says)) {
			t.Errorf("%+v: %v", tt.addon, errs)
		}
		objects, err := tt.addon.Objects(demo)
		if tt.image == "" {
			if err == nil {
				t.Errorf("%+v: it has objects", tt.addon)
			}
			continue
		}
		var images []string
		for _, o := range objects {
			containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			for _, c := range containers {
				images = append(images, c.(map[string]any)["image"].(string)) //nolint:forcetypeassert // so it is
			}
		}
		if err != nil || len(images) != 1 || images[0] != tt.image {
			t.Errorf("%+v: %v %q", tt.addon, err, images)
		}
	}
}

// TestCoreDNSEndsUnready: kube-proxies sync once a second, and the time between a failed probe and them is about another one.
func TestCoreDNSEndsUnready(t *testing.T) {
	const noticed = 2 * time.Second
	probe := coreDNSDeployment("", "").Spec.Template.Spec.Containers[0].ReadinessProbe
	if unready := time.Duration(probe.PeriodSeconds*probe.FailureThreshold) * time.Second; unready+noticed >= coreDNSLameduck {
		t.Errorf("a pod that ends is unready after %s, and answers for %s only", unready, coreDNSLameduck)
	}
}
