// Package bake makes machine images that have what roles install: a machine of EC2 is made, gets packages, programs and container
// images from the tables of the roles, is checked, loses what no two machines may share, and becomes an image.
//
// What may not enter: another list of what roles need, what an image is in EC2 (package aws/image), how a machine is launched
// (package aws/machine), and scripts (packages host and deed).
package bake

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/builtin"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/deed"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
)

// Content is what an image has. It does not say where programs and container images are downloaded from: that is not part
// of what they are.
type Content struct {
	// Roles are those of the machines that are made of the image.
	Roles []aws.MachineRole
	// Releases are those of the programs. Kubernetes is needed for controllers and workers, and etcd for the role etcd.
	Releases component.Releases
	// Packages and Images are packages of the distribution and container images beside those of the roles. Container images are
	// only for workers.
	Packages, Images []string
	// Base is the image on which this one is based, as in machine.Spec.Image, or BaseFilter finds it.
	Base       string
	BaseFilter *machine.ImageFilter
	Arch       string // artifact.AMD64 or artifact.ARM64
	// Authorities are certificates, PEM, that the machine trusts beside those of its distribution.
	Authorities string
}

// format changes when the same content becomes another image.
const format = 1

func (c Content) has(r aws.MachineRole) bool { return slices.Contains(c.Roles, r) }

// Artifacts returns what is downloaded, from the catalog of another architecture if need be. The list is complete even if the
// error is artifact.ErrUnknownChecksum.
func (c Content) Artifacts(catalog *artifact.Catalog) ([]artifact.Artifact, error) {
	catalog = catalog.ForArch(c.Arch)
	var controller component.Releases
	if c.has(aws.RoleEtcd) {
		controller.Etcd = c.Releases.Etcd
	}
	if c.has(aws.RoleController) {
		controller.Kubernetes = c.Releases.Kubernetes
	}
	out, err := controller.Controller(catalog)
	if c.has(aws.RoleWorker) {
		more, failed := c.Releases.Worker(catalog)
		out, err = append(out, more...), errors.Join(err, failed)
	}
	// Two roles may have the same program.
	slices.SortStableFunc(out, func(a, b artifact.Artifact) int { return strings.Compare(a.Path, b.Path) })
	return slices.CompactFunc(out, func(a, b artifact.Artifact) bool { return a.Path == b.Path }), err
}

// State returns the wanted state of the machine that becomes the image, with the downloads of Artifacts.
func (c Content) State(downloads []artifact.Artifact) desired.State {
	s := component.Staged(downloads, c.packages())
	s.Authorities = c.Authorities
	return s
}

// packages returns the packages of the distribution, sorted.
func (c Content) packages() []string {
	out := slices.Clone(c.Packages)
	if c.has(aws.RoleWorker) {
		out = append(out, component.WorkerPackages()...)
	}
	if c.has(aws.RoleLoadBalancer) {
		out = append(out, component.LoadBalancerPackages()...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// PodImages returns the container images, sorted. Only machines with pods have any.
func (c Content) PodImages() []string {
	if !c.has(aws.RoleWorker) {
		return nil
	}
	out := slices.Concat(builtin.PodImages(), c.Images)
	slices.Sort(out)
	return slices.Compact(out)
}

// Versions returns the version of each program, by its name.
func (c Content) Versions(catalog *artifact.Catalog) (map[string]string, error) {
	all, err := c.Artifacts(catalog)
	if err != nil && !errors.Is(err, artifact.ErrUnknownChecksum) {
		return nil, err
	}
	out := map[string]string{}
	for _, a := range all {
		out[a.Name] = a.Version
	}
	return out, nil
}

// Digest identifies the content, with all that makes the image of it: it is known before anything is asked.
func (c Content) Digest(catalog *artifact.Catalog) (string, error) {
	versions, err := c.Versions(catalog)
	if err != nil {
		return "", err
	}
	base := c.Base
	if c.BaseFilter != nil {
		base = c.BaseFilter.String()
	}
	roles := slices.Sorted(slices.Values(c.Roles))
	text, err := json.Marshal([]any{format, slices.Compact(roles), versions, c.packages(), c.PodImages(), base, c.Arch, c.Authorities, host.ScriptDigest(), deed.ImageScripts()})
	if err != nil {
		return "", err
	}
	return desired.Sum(text), nil
}

// maxTag is how many characters the value of a tag may have.
const maxTag = 256

// Summary says which versions an image has, in the characters of a tag: "containerd 2.3.7, etcd 3.6.16, kubernetes 1.36.4".
func Summary(versions map[string]string) string {
	short := map[string]string{}
	for name, v := range versions {
		if strings.HasPrefix(name, "kube") {
			name = "kubernetes"
		}
		short[name] = v
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(short)) {
		out = append(out, name+" "+short[name])
	}
	text := strings.Join(out, " ")
	return text[:min(len(text), maxTag)]
}

// versionArguments are the arguments with which a program says its version, and does nothing else, where that is not --version.
var versionArguments = map[string]string{
	"etcdctl": "version", "etcdutl": "version", "kubectl": "version --client", "containerd-shim-runc-v2": "-v",
}

// checks returns a command for each program of a state, which says its version.
func checks(s desired.State) (commands []string) {
	for _, b := range s.Binaries {
		for _, i := range b.Installs {
			arguments := versionArguments[path.Base(i.Path)]
			if arguments == "" {
				arguments = "--version"
			}
			commands = append(commands, fmt.Sprintf("%s %s", i.Path, arguments))
		}
	}
	return commands
}

// program returns the path at which a state installs a program; empty if it does not.
func program(s desired.State, name string) string {
	for _, b := range s.Binaries {
		for _, i := range b.Installs {
			if path.Base(i.Path) == name {
				return i.Path
			}
		}
	}
	return ""
}
