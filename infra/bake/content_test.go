package bake

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/builtin"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
)

func whole() Content {
	return Content{Roles: aws.MachineRoles(), Releases: component.Releases{Kubernetes: "1.36.4", Etcd: "3.6.16"}, Arch: artifact.AMD64}
}

func catalog(t *testing.T, mirror string) *artifact.Catalog {
	t.Helper()
	c, err := artifact.NewCatalog(mirror, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestDigest: every part of the content makes another digest, and where it comes from does not.
func TestDigest(t *testing.T) {
	digest := func(c Content, mirror string) string {
		d, err := c.Digest(catalog(t, mirror))
		if err != nil || !regexp.MustCompile(`^[0-9a-f]{64}$`).MatchString(d) {
			t.Fatalf("%q, %v", d, err)
		}
		return d
	}
	seen := map[string]string{digest(whole(), ""): "nothing"}
	for what, change := range map[string]func(*Content){
		"roles":           func(c *Content) { c.Roles = c.Roles[:3] },
		"kubernetes":      func(c *Content) { c.Releases.Kubernetes = "1.36.3" },
		"etcd":            func(c *Content) { c.Releases.Etcd = "3.6.15" },
		"containerd":      func(c *Content) { c.Releases.Containerd = "2.3.6" },
		"runc":            func(c *Content) { c.Releases.Runc = "1.5.1" },
		"CNI plugins":     func(c *Content) { c.Releases.CNIPlugins = "1.9.0" },
		"no kube-proxy":   func(c *Content) { c.Releases.NoKubeProxy = true },
		"a package":       func(c *Content) { c.Packages = []string{"chrony"} },
		"a pod's image":   func(c *Content) { c.Images = []string{"quay.io/a/b:1"} },
		"a base":          func(c *Content) { c.Base = "ami-0123456789abcdef0" },
		"a filter":        func(c *Content) { c.BaseFilter = &machine.ImageFilter{Name: "a", Owners: []string{"self"}} },
		"an architecture": func(c *Content) { c.Arch = artifact.ARM64 },
		"an authority":    func(c *Content) { c.Authorities = "-----BEGIN CERTIFICATE-----" },
	} {
		c := whole()
		change(&c)
		d := digest(c, "")
		if seen[d] != "" {
			t.Errorf("%s has the digest of %s", what, seen[d])
		}
		seen[d] = what
	}
	same := whole()
	same.Roles = append(slices.Clone(same.Roles), aws.RoleWorker)
	slices.Reverse(same.Roles)
	same.Releases.Containerd, same.Packages = artifact.DefaultContainerd, []string{"haproxy"}
	for _, mirror := range []string{"", "https://mirror.example.com"} {
		if got := seen[digest(same, mirror)]; got != "nothing" {
			t.Errorf("the same content in another order, from %q, has another digest", mirror)
		}
	}
}

// TestContent: an image has the downloads, packages and container images of its roles, each once, and nothing else.
func TestContent(t *testing.T) {
	for _, tt := range []struct {
		roles              []aws.MachineRole
		programs, packages string
		images             int
	}{
		{[]aws.MachineRole{aws.RoleLoadBalancer}, "", "haproxy", 0},
		{[]aws.MachineRole{aws.RoleEtcd}, "etcd", "", 0},
		{[]aws.MachineRole{aws.RoleController}, "kube-apiserver kube-controller-manager kube-scheduler", "", 0},
		{[]aws.MachineRole{aws.RoleWorker}, "cni-plugins containerd kube-proxy kubelet runc", "nftables", len(builtin.PodImages())},
		{aws.MachineRoles(), "cni-plugins containerd etcd kube-apiserver kube-controller-manager kube-proxy kube-scheduler kubelet runc", "haproxy nftables", len(builtin.PodImages())},
	} {
		c := whole()
		c.Roles = tt.roles
		versions, err := c.Versions(catalog(t, ""))
		if err != nil {
			t.Fatal(err)
		}
		downloads, _ := c.Artifacts(catalog(t, ""))
		state := c.State(downloads)
		var programs []string
		for _, b := range state.Binaries {
			programs = append(programs, b.Name)
		}
		slices.Sort(programs)
		if got := strings.Join(programs, " "); got != tt.programs || len(versions) != len(programs) {
			t.Errorf("%v has the programs %s, wanted %s", tt.roles, got, tt.programs)
		}
		if got := strings.Join(state.Packages, " "); got != tt.packages {
			t.Errorf("%v has the packages %s, wanted %s", tt.roles, got, tt.packages)
		}
		if got := c.PodImages(); len(got) != tt.images {
			t.Errorf("%v has the images %v", tt.roles, got)
		}
		commands := strings.Join(checks(state), "\n")
		for _, b := range state.Binaries {
			for _, i := range b.Installs {
				if !strings.Contains(commands, i.Path+" ") {
					t.Errorf("nobody asks %s for its version", i.Path)
				}
			}
		}
	}
}

// TestSummary: the versions fit into a tag.
func TestSummary(t *testing.T) {
	versions, err := whole().Versions(catalog(t, ""))
	if err != nil {
		t.Fatal(err)
	}
	if got := Summary(versions); got != "cni-plugins "+artifact.DefaultCNIPlugins+" containerd "+artifact.DefaultContainerd+" etcd 3.6.16 kubernetes 1.36.4 runc "+artifact.DefaultRunc {
		t.Error(got)
	}
}
