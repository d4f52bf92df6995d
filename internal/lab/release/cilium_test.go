package release

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"golang.org/x/mod/modfile"
)

// TestCiliumProduct checks that the images take each program that is built, and no other one.
func TestCiliumProduct(t *testing.T) {
	built := ciliumProduct().programs()
	taken := []string{ciliumOperator}
	for name := range ciliumPrograms {
		taken = append(taken, name)
	}
	slices.Sort(built)
	slices.Sort(taken)
	if !slices.Equal(built, taken) {
		t.Errorf("built %v, taken %v", built, taken)
	}
	if !slices.IsSorted(slices.Compact(slices.Sorted(slices.Values(ciliumPackages)))) || len(slices.Compact(slices.Sorted(slices.Values(ciliumPackages)))) != len(ciliumPackages) {
		t.Error("a package is named twice")
	}
}

// TestCiliumReplaces checks that the module in which Cilium is built keeps the replacements of
// modules by forks, and drops the tools.
func TestCiliumReplaces(t *testing.T) {
	const upstream = `module github.com/cilium/cilium
go 1.25.0
require github.com/osrg/gobgp/v3 v3.37.0
replace github.com/osrg/gobgp/v3 => github.com/cilium/gobgp/v3 v3.0.0-20260130142103-27e5da2a39e6
tool golang.org/x/tools/cmd/goimports
`
	made, err := wrapperModule([]byte(upstream), ciliumProduct().modules[0])
	must(t, err)
	f, err := modfile.Parse("go.mod", made, nil)
	must(t, err)
	if len(f.Replace) != 1 || f.Replace[0].New.Path != "github.com/cilium/gobgp/v3" || len(f.Tool) > 0 {
		t.Errorf("the module is\n%s", made)
	}
	if !slices.ContainsFunc(f.Require, func(r *modfile.Require) bool { return r.Mod.Path == ciliumModule && r.Mod.Version == CiliumVersion }) {
		t.Errorf("the module does not require Cilium:\n%s", made)
	}
}

// TestImageOfTree writes an image of a directory tree.
func TestImageOfTree(t *testing.T) {
	work, programs := t.TempDir(), t.TempDir()
	must(t, writeFile(filepath.Join(programs, ciliumOperator), []byte("program")))
	root := filepath.Join(work, "root")
	must(t, operatorRoot(root, programs))
	path, err := layout.Write(filepath.Join(work, "images"), empty.Index)
	must(t, err)
	b := &builder{work: work}
	must(t, b.addTree(context.Background(), path, CiliumOperatorImage, root, "/usr/bin/"+ciliumOperator))
	index, err := layout.ImageIndexFromPath(string(path))
	must(t, err)
	manifest, err := index.IndexManifest()
	must(t, err)
	img, err := index.Image(manifest.Manifests[0].Digest)
	must(t, err)
	layers, err := img.Layers()
	must(t, err)
	config, err := img.ConfigFile()
	must(t, err)
	if len(layers) != 1 || config.Architecture != goarch || !slices.Equal(config.Config.Cmd, []string{"/usr/bin/" + ciliumOperator}) {
		t.Errorf("%d layers, %+v", len(layers), config)
	}
	if _, err := os.Stat(filepath.Join(root, "etc/passwd")); err != nil {
		t.Error(err)
	}
}
