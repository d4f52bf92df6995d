package plans

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/release"
)

// mirror serves what machines download: the real etcd and kube-apiserver, and tiny scripts in place
// of all other programs.
type mirror struct {
	real  string            // directory of the real ones, in the layout of a mirror
	small map[string][]byte // by path
	sums  string            // of all, in the form of sha256sum(1)
}

// really reports whether the machines get the real program of that name.
func really(name string) bool { return name == artifact.Etcd || name == artifact.KubeAPIServer }

func newMirror(real string) (*mirror, error) {
	m := &mirror{real: real, small: map[string][]byte{}}
	known, err := os.ReadFile(filepath.Join(real, "SHA256SUMS"))
	if err != nil {
		return nil, err
	}
	catalog, err := artifact.NewUnpinned(nil)
	if err != nil {
		return nil, err
	}
	kubernetes := strings.TrimPrefix(release.KubernetesVersion, "v")
	// Each returns an error, since the checksums are not known yet.
	etcd, _ := catalog.EtcdSet(strings.TrimPrefix(release.EtcdVersion, "v"))
	controller, _ := catalog.ControlPlaneSet(kubernetes)
	worker, _ := catalog.WorkerSet(kubernetes, "", "", "", true)
	for _, a := range append(append(etcd, controller...), worker...) {
		if really(a.Name) {
			for line := range strings.Lines(string(known)) {
				if strings.HasSuffix(strings.TrimSpace(line), a.Path) {
					m.sums += line
				}
			}
			continue
		}
		content, err := small(a)
		if err != nil {
			return nil, err
		}
		m.small[a.Path] = content
		m.sums += fmt.Sprintf("%x  %s\n", sha256.Sum256(content), a.Path)
	}
	return m, nil
}

// small returns a download with scripts in place of the programs.
func small(a artifact.Artifact) ([]byte, error) {
	script := []byte(fmt.Sprintf("#!/bin/sh\necho '%s v%s'\n", a.Name, a.Version))
	var members []string
	for _, i := range component.Staged([]artifact.Artifact{a}, nil).Binaries[0].Installs {
		if i.Member == "" {
			return script, nil
		}
		members = append(members, i.Member)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	t := tar.NewWriter(z)
	for _, name := range members {
		if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(script))}); err != nil {
			return nil, err
		}
		if _, err := t.Write(script); err != nil {
			return nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, err
	}
	err := z.Close()
	return b.Bytes(), err
}

// ServeHTTP implements http.Handler.
func (m *mirror) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if content, ok := m.small[strings.TrimPrefix(r.URL.Path, "/")]; ok {
		_, _ = w.Write(content)
		return
	}
	http.FileServer(http.Dir(m.real)).ServeHTTP(w, r)
}
