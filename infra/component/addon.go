package component

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// Addon is an addon that is built in: its objects are this package's.
type Addon struct {
	Name    string
	Version string // one of the releases that are built in; empty means the newest
	Image   string // in place of the image of the release
}

// releases are the releases of an addon's program with which these objects were tested.
type releases struct {
	repository string
	versions   []string // the newest first
}

var builtInAddons = map[string]releases{
	coreDNSName:       {"registry.k8s.io/coredns/coredns", []string{"1.15.0", "1.14.6"}},
	metricsServerName: {"registry.k8s.io/metrics-server/metrics-server", []string{"0.9.0"}},
}

// BuiltIn says whether there is an addon of this name.
func BuiltIn(name string) bool { _, ok := builtInAddons[name]; return ok }

// DefaultAddonImage returns the image of the newest release of an addon that is built in.
func DefaultAddonImage(name string) string { return builtInAddons[name].image("") }

func (r releases) image(version string) string {
	return r.repository + ":v" + cmp.Or(version, r.versions[0])
}

// Check checks the fields that are set, without the cluster.
func (a Addon) Check() (errs invalid.Fields) {
	r, ok := builtInAddons[a.Name]
	if !ok {
		errs.Say("name", "Unknown addon", "%q is not built in (%s are): set manifests.", a.Name, strings.Join(slices.Sorted(maps.Keys(builtInAddons)), " and "))
		return errs
	}
	if a.Version != "" && !slices.Contains(r.versions, a.Version) {
		errs.Say("version", "Unknown release", "Release %q of %s is not built in. Built in: %s. For another release set image, such as %s.",
			a.Version, a.Name, strings.Join(r.versions, ", "), r.repository+":v"+strings.TrimPrefix(a.Version, "v"))
	}
	if a.Image != "" && !imageName.MatchString(a.Image) {
		errs.Say("image", "Unusable image", "%q is not the name of an image, such as %s.", a.Image, r.image(a.Version))
	}
	return errs
}

// Objects returns the objects of the addon.
func (a Addon) Objects(c Cluster) ([]*unstructured.Unstructured, error) {
	if err := a.Check().Err(); err != nil {
		return nil, fmt.Errorf("addon %s: %w", a.Name, err)
	}
	image := cmp.Or(a.Image, builtInAddons[a.Name].image(a.Version))
	if a.Name == metricsServerName {
		return MetricsServer(MetricsServerSpec{PKI: c.PKI, Image: image})
	}
	return CoreDNS(CoreDNSSpec{Domain: c.Domain, DNSIP: c.DNSIP, PKI: c.PKI, Image: image})
}
