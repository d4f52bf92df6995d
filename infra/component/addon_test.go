package component

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

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
		{Addon{Name: "dns"}, "", "name", `"dns" is not built in (coredns and metrics-server are)`},
	} {
		errs := tt.addon.Check()
		if tt.wrong == "" && len(errs) > 0 || tt.wrong != "" && (len(errs) != 1 || errs[0].Field != tt.wrong || !strings.Contains(errs[0].Error(), tt.says)) {
			t.Errorf("%+v: %v", tt.addon, errs)
		}
		objects, err := tt.addon.Objects(testCluster())
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
	probe := coreDNSDeployment(CoreDNSSpec{}, "").Spec.Template.Spec.Containers[0].ReadinessProbe
	if unready := time.Duration(probe.PeriodSeconds*probe.FailureThreshold) * time.Second; unready+noticed >= coreDNSLameduck {
		t.Errorf("a pod that ends is unready after %s, and answers for %s only", unready, coreDNSLameduck)
	}
}
