package release

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

//go:embed pause/main.go
var pauseSource string

// builder makes the programs of products from Go modules and Debian packages.
type builder struct {
	// work is an existing directory for temporary files.
	work     string
	progress *progress.Reporter
}

// build writes every program of p to a file of its name in dir. It returns the time of the release,
// zero if unknown.
func (b *builder) build(ctx context.Context, p product, dir string) (time.Time, error) {
	var released time.Time
	for _, m := range p.modules {
		t, err := b.buildModule(ctx, p.name, m, dir)
		if err != nil {
			return time.Time{}, fmt.Errorf("building %s from Go module %s@%s: %w", p.title(), m.path, m.version, err)
		}
		released = t
	}
	if p.source != "" {
		if err := b.buildSource(ctx, p, dir); err != nil {
			return time.Time{}, fmt.Errorf("building %s: %w", p.title(), err)
		}
	}
	if err := b.unpackDebian(ctx, p.debian, dir); err != nil {
		return time.Time{}, fmt.Errorf("getting %s: %w", p.title(), err)
	}
	return released, nil
}

// moduleInfo is the output of `go mod download -json` together with the proxy's .info file.
type moduleInfo struct {
	Dir, GoMod, Info, Error string

	Time   time.Time
	Origin struct{ Hash string }
}

func (b *builder) download(ctx context.Context, m module, dir string) (moduleInfo, error) {
	var stdout bytes.Buffer
	cmd := b.command(ctx, dir, "go", "mod", "download", "-json", m.path+"@"+m.version)
	cmd.Stdout = &stdout
	stop := b.progress.Quiet("fetching Go module " + m.path + "@" + m.version)
	runErr := run(cmd, nil)
	stop()
	var info moduleInfo
	if err := json.Unmarshal(stdout.Bytes(), &info); err != nil {
		return info, errors.Join(runErr, err)
	}
	if info.Error != "" {
		return info, errors.New(info.Error)
	}
	data, err := os.ReadFile(info.Info)
	if err != nil {
		return info, err
	}
	return info, json.Unmarshal(data, &info)
}

// buildModule builds m's programs in a new module that requires m and repeats m's requirements,
// replacements and checksums. So every dependency has the version that upstream released with.
func (b *builder) buildModule(ctx context.Context, product string, m module, out string) (time.Time, error) {
	dir, err := os.MkdirTemp(b.work, "module-")
	if err != nil {
		return time.Time{}, err
	}
	defer os.RemoveAll(dir)

	info, err := b.download(ctx, m, dir)
	if err != nil {
		return time.Time{}, err
	}
	upstream, err := os.ReadFile(info.GoMod)
	if err != nil {
		return time.Time{}, err
	}
	gomod, err := wrapperModule(upstream, m)
	if err != nil {
		return time.Time{}, err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), gomod, 0o644); err != nil {
		return time.Time{}, err
	}
	gosum, err := os.ReadFile(filepath.Join(info.Dir, "go.sum"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, err
	}
	if err := os.WriteFile(filepath.Join(dir, "go.sum"), gosum, 0o644); err != nil {
		return time.Time{}, err
	}

	args, env, err := b.buildFlags(ctx, m, info, dir)
	if err != nil {
		return time.Time{}, err
	}
	bin := filepath.Join(dir, "bin") + string(filepath.Separator)
	args = append(args, "-o", bin)
	var names []string
	for _, p := range m.programs {
		args = append(args, p.pkg)
		names = append(names, p.name)
	}
	cmd := b.command(ctx, dir, "go", args...)
	cmd.Env = append(cmd.Env, env...)
	if err := b.runBuild(cmd, title(product, names, m.version)); err != nil {
		return time.Time{}, err
	}
	for _, p := range m.programs {
		if err := os.Rename(filepath.Join(bin, executableName(p.pkg)), filepath.Join(out, p.name)); err != nil {
			return time.Time{}, err
		}
	}
	return info.Time, nil
}

// buildFlags returns the arguments and environment of `go build` for m.
func (b *builder) buildFlags(ctx context.Context, m module, info moduleInfo, dir string) (args, env []string, err error) {
	ldflags := []string{"-s", "-w"}
	values := strings.NewReplacer("{time}", info.Time.UTC().Format(time.RFC3339), "{commit}", info.Origin.Hash)
	for _, v := range m.vars {
		ldflags = append(ldflags, "-X", values.Replace(v))
	}
	env = []string{"CGO_ENABLED=0"}
	if m.static.name != "" {
		root := filepath.Join(dir, "lib"+m.static.name)
		lib, err := b.staticLibrary(ctx, m.static, root)
		if err != nil {
			return nil, nil, err
		}
		// Both kinds of build id depend on the directory of the library.
		ldflags = append(ldflags, "-buildid=", "-extldflags", "'-static -Wl,--build-id=none'")
		env = []string{
			"CGO_ENABLED=1", "PKG_CONFIG=true",
			"CGO_CFLAGS=-O2 -I" + filepath.Join(root, "usr", "include"),
			"CGO_LDFLAGS=-L" + filepath.Dir(lib) + " -l" + m.static.name,
		}
	}
	args = []string{"build", "-v", "-mod=mod", "-trimpath", "-buildvcs=false", "-ldflags", strings.Join(ldflags, " ")}
	if len(m.tags) > 0 {
		args = append(args, "-tags", strings.Join(m.tags, ","))
	}
	return args, env, nil
}

func (b *builder) buildSource(ctx context.Context, p product, out string) error {
	dir, err := os.MkdirTemp(b.work, "source-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for name, content := range map[string]string{"go.mod": "module k8s-lab.invalid/build\n\ngo 1.26\n", "main.go": p.source} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	cmd := b.command(ctx, dir, "go", "build", "-v", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -X main.version="+p.version, "-o", filepath.Join(out, p.name), ".")
	cmd.Env = append(cmd.Env, "CGO_ENABLED=0")
	return b.runBuild(cmd, p.title())
}

// wrapperModule returns the go.mod of a module that requires m, derived from upstream, the go.mod
// of m. Replacements by directories of m's repository are dropped: a module that m requires as
// v0.0.0 gets the version m.staging, any other the required version. A replacement by another path in the required
// version is dropped as well: a repository has moved, and not every proxy serves the new path. The go version is repeated,
// the toolchain is not.
func wrapperModule(upstream []byte, m module) ([]byte, error) {
	f, err := modfile.Parse(m.path+"/go.mod", upstream, nil)
	if err != nil {
		return nil, err
	}
	required := make(map[string]string, len(f.Require))
	for _, r := range f.Require {
		required[r.Mod.Path] = r.Mod.Version
	}
	f.DropToolchainStmt()
	err = errors.Join(f.AddModuleStmt("k8s-lab.invalid/build"), f.AddRequire(m.path, m.version))
	for _, t := range slices.Clone(f.Tool) {
		err = errors.Join(err, f.DropTool(t.Path))
	}
	for _, r := range slices.Clone(f.Replace) {
		old := r.Old
		if r.New.Version != "" && r.New.Version != required[old.Path] {
			continue
		}
		err = errors.Join(err, f.DropReplace(old.Path, old.Version))
		if m.staging != "" && required[old.Path] == "v0.0.0" {
			err = errors.Join(err, f.AddReplace(old.Path, "", old.Path, m.staging))
		}
	}
	if err != nil {
		return nil, err
	}
	f.Cleanup()
	return f.Format()
}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// executableName returns the name that `go build -o dir/` gives the command pkg.
func executableName(pkg string) string {
	if base := path.Base(pkg); !majorVersion.MatchString(base) {
		return base
	}
	return path.Base(path.Dir(pkg))
}
