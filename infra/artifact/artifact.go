// Package artifact knows what machines download: the URL of every upstream release file, the same
// file on a mirror, and its SHA-256.
//
// Everything but Catalog.Resolve is pure. Resolve reads published checksum files through the given
// HTTP client. What may not enter: the download of artifacts, which the machines do themselves.
package artifact

import (
	"cmp"
	"errors"
	"net/http"
)

// Names of the artifacts that are not programs of a Kubernetes release.
const (
	Etcd       = "etcd"
	Containerd = "containerd"
	Runc       = "runc"
	CNIPlugins = "cni-plugins"
)

// Programs of a Kubernetes release, the names accepted by Catalog.Kubernetes.
const (
	KubeAPIServer         = "kube-apiserver"
	KubeControllerManager = "kube-controller-manager"
	KubeScheduler         = "kube-scheduler"
	Kubelet               = "kubelet"
	KubeProxy             = "kube-proxy"
	Kubectl               = "kubectl"
)

// The default versions.
const (
	DefaultEtcd       = "3.6.16"
	NextEtcd          = "3.7.3" // the newest of the next minor
	DefaultContainerd = "2.3.7"
	DefaultRunc       = "1.5.2"
	DefaultCNIPlugins = "1.9.1"
)

// ErrUnknownChecksum is returned with an otherwise complete Artifact if its SHA-256 is not known;
// Catalog.Resolve fills it in.
var ErrUnknownChecksum = errors.New("checksum is not known")

// Architectures of machines, by their names in Go and in upstream's files.
const (
	AMD64 = "amd64"
	ARM64 = "arm64"
)

// Artifact is one file to download.
type Artifact struct {
	Name    string `json:"name"`
	Arch    string `json:"arch,omitempty"`
	Version string `json:"version"` // without "v"
	Path    string `json:"path"`    // in the mirror layout: "<upstream host>/<path>"
	URL     string `json:"url"`
	SHA256  string `json:"sha256,omitempty"` // hex; empty while not known

	// Checksums is the URL of upstream's published checksums for the file.
	Checksums string `json:"checksums,omitempty"`
}

// HTTPDoer is the part of *http.Client that Catalog.Resolve needs.
type HTTPDoer interface {
	Do(*http.Request) (*http.Response, error)
}

// OfArch returns the artifacts of an architecture; empty means AMD64.
func OfArch(artifacts []Artifact, arch string) []Artifact {
	var out []Artifact
	for _, a := range artifacts {
		if cmp.Or(a.Arch, AMD64) == cmp.Or(arch, AMD64) {
			out = append(out, a)
		}
	}
	return out
}

// Find returns the artifact of that name.
func Find(artifacts []Artifact, name string) (Artifact, bool) {
	for _, a := range artifacts {
		if a.Name == name {
			return a, true
		}
	}
	return Artifact{}, false
}
