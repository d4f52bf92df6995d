package release

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

// parallelBuilds is 2 so that one build can fetch modules or link while another compiles.
const parallelBuilds = 2

// store is a directory with the files of products. An index beside it records the verified files,
// so that they need not be read again.
type store struct {
	cacheDir string
	name     string
	progress *progress.Reporter
	upstream *upstream

	mu      sync.Mutex
	entries map[string]entry
}

// buildFormat is raised when the same product definition yields other files.
const buildFormat = 1

// entry is the index's entry of one file.
type entry struct {
	SHA256  string    `json:"sha256"`
	Size    int64     `json:"size"`
	ModTime time.Time `json:"modTime"`
	// Recipe identifies the product definition that the file was built from. It is empty for files
	// from upstream.
	Recipe string `json:"recipe,omitempty"`
}

func newStore(opts Options, name string) *store {
	return &store{cacheDir: opts.CacheDir, name: name, progress: opts.Progress, upstream: newUpstream(opts.Client, opts.Progress)}
}

func (s *store) dir() string       { return filepath.Join(s.cacheDir, s.name) }
func (s *store) indexFile() string { return filepath.Join(s.cacheDir, s.name+"-index.json") }
func (s *store) sumsFile() string  { return filepath.Join(s.dir(), "SHA256SUMS") }

// ensure adds the missing files of the products to the store.
func (s *store) ensure(ctx context.Context, products []product) error {
	if err := s.load(); err != nil {
		return err
	}
	if len(s.missing(products)) == 0 && s.sumsCurrent() {
		return nil
	}
	unlock, err := lock(ctx, s.cacheDir, s.progress)
	if err != nil {
		return err
	}
	defer unlock()
	return s.complete(ctx, products)
}

// complete does the work of ensure. The caller holds the cache's lock.
func (s *store) complete(ctx context.Context, products []product) error {
	if err := s.load(); err != nil {
		return err
	}
	if err := s.verify(); err != nil {
		return err
	}
	if err := s.make(ctx, s.missing(products)); err != nil {
		return err
	}
	if s.sumsCurrent() {
		return nil
	}
	return s.save()
}

// make fetches the products that upstream serves and builds the others. Finished products stay in
// the store when another fails.
func (s *store) make(ctx context.Context, products []product) error {
	if len(products) == 0 {
		return nil
	}
	work := filepath.Join(s.cacheDir, "work")
	if err := os.RemoveAll(work); err != nil {
		return err
	}
	if err := os.MkdirAll(work, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(work)

	build := make([]bool, len(products))
	fetches, fetchCtx := errgroup.WithContext(ctx)
	for i, p := range products {
		fetches.Go(func() error {
			if !p.published {
				build[i] = true
				return nil
			}
			err := s.fill(work, p, "", func(dir string) error { return s.upstream.fetch(fetchCtx, p, dir) })
			build[i] = errors.Is(err, errUnavailable)
			if build[i] {
				return nil
			}
			return err
		})
	}
	if err := fetches.Wait(); err != nil {
		return err
	}
	b := &builder{work: work, progress: s.progress}
	builds, buildCtx := errgroup.WithContext(ctx)
	builds.SetLimit(parallelBuilds)
	for i, p := range products {
		if build[i] {
			builds.Go(func() error {
				return s.fill(work, p, p.recipe(), func(dir string) error { return b.make(buildCtx, p, dir) })
			})
		}
	}
	return builds.Wait()
}

// make builds p and packs it as upstream does.
func (b *builder) make(ctx context.Context, p product, dir string) error {
	if p.archive == "" {
		_, err := b.build(ctx, p, dir)
		return err
	}
	programs, err := os.MkdirTemp(b.work, "programs-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(programs)
	released, err := b.build(ctx, p, programs)
	if err != nil {
		return err
	}
	if err := writeArchive(filepath.Join(dir, p.archive), programs, p.inside, p.programs(), released); err != nil {
		return fmt.Errorf("packing %s: %w", p.archive, err)
	}
	return nil
}

// fill calls put with a new directory of work, and publishes the files of p that put made there.
func (s *store) fill(work string, p product, recipe string, put func(dir string) error) error {
	dir, err := os.MkdirTemp(work, "product-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := put(dir); err != nil {
		return err
	}
	return s.publish(p, recipe, dir)
}

// publish moves the files of p from dir into the store, each atomically, and writes their checksums
// beside them as upstream does.
func (s *store) publish(p product, recipe, dir string) error {
	var lines strings.Builder
	for _, name := range p.files() {
		from, to := filepath.Join(dir, path.Base(name)), filepath.Join(s.dir(), filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.Chmod(from, 0o755); err != nil {
			return err
		}
		e, err := examine(from)
		if err != nil {
			return err
		}
		e.Recipe = recipe
		if err := file.Rename(from, to); err != nil {
			return err
		}
		s.mu.Lock()
		s.entries[name] = e
		s.mu.Unlock()

		line := e.SHA256 + "  " + path.Base(name) + "\n"
		lines.WriteString(line)
		if p.bareSums {
			line = e.SHA256
		}
		if !p.published {
			continue
		}
		if err := writeFile(to+".sha256", []byte(line)); err != nil {
			return err
		}
		if strings.HasPrefix(p.sums, ".") && p.sums != ".sha256" {
			if err := writeFile(to+p.sums, []byte(line)); err != nil {
				return err
			}
		}
	}
	if p.sums != "" && !strings.HasPrefix(p.sums, ".") {
		if err := writeFile(filepath.Join(s.dir(), p.base, p.sums), []byte(lines.String())); err != nil {
			return err
		}
	}
	return s.save()
}

// missing returns the products that have a file which is absent, changed since it was verified, or
// built from another recipe.
func (s *store) missing(products []product) []product {
	return slices.DeleteFunc(slices.Clone(products), func(p product) bool {
		for _, file := range p.files() {
			e, ok := s.entries[file]
			if !ok || e.Recipe != "" && e.Recipe != p.recipe() || !s.unchanged(file, e) {
				return false
			}
		}
		return true
	})
}

func (s *store) unchanged(file string, e entry) bool {
	info, err := os.Stat(filepath.Join(s.dir(), filepath.FromSlash(file)))
	return err == nil && info.Mode().IsRegular() && info.Size() == e.Size && info.ModTime().Equal(e.ModTime)
}

// verify reads the files that were touched since they were verified, and drops changed files from
// the index.
func (s *store) verify() error {
	changed := false
	for file, e := range s.entries {
		if s.unchanged(file, e) {
			continue
		}
		changed = true
		now, err := examine(filepath.Join(s.dir(), filepath.FromSlash(file)))
		if err == nil && now.SHA256 == e.SHA256 {
			now.Recipe = e.Recipe
			s.entries[file] = now
			continue
		}
		if err == nil {
			s.progress.Line(filepath.Join(s.dir(), file) + " has changed since it was made: making it again")
		}
		delete(s.entries, file)
	}
	if changed {
		return s.save()
	}
	return nil
}

func examine(file string) (entry, error) {
	f, err := os.Open(file)
	if err != nil {
		return entry{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return entry{}, err
	}
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return entry{}, err
	}
	return entry{SHA256: hex.EncodeToString(hash.Sum(nil)), Size: info.Size(), ModTime: info.ModTime()}, nil
}

func (s *store) load() error {
	s.entries = make(map[string]entry)
	data, err := os.ReadFile(s.indexFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, &s.entries); err != nil {
		return fmt.Errorf("reading %s (remove it to build everything again): %w", s.indexFile(), err)
	}
	return nil
}

// save writes the index and the list of checksums together, so that a process that needs only
// existing files need not wait for the others.
func (s *store) save() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, err := json.MarshalIndent(s.entries, "", "  ")
	if err != nil {
		return err
	}
	return errors.Join(writeFile(s.indexFile(), data), writeFile(s.sumsFile(), s.sums()))
}

// sums returns the store's list of checksums in the format of sha256sum(1).
func (s *store) sums() []byte {
	var b strings.Builder
	for _, file := range slices.Sorted(maps.Keys(s.entries)) {
		fmt.Fprintf(&b, "%s  %s\n", s.entries[file].SHA256, file)
	}
	return []byte(b.String())
}

func (s *store) sumsCurrent() bool {
	have, err := os.ReadFile(s.sumsFile())
	return err == nil && string(have) == string(s.sums())
}

// typeNames matches the types in a product's printed form.
var typeNames = regexp.MustCompile(`\brelease\.(product|module|program|staticLibrary|debianFile)\b`)

// recipe identifies how the product is built: a hash of its printed form. In that form the types
// have the package name artifact, under which existing caches were filled; another name would
// repeat hours of building.
func (p product) recipe() string {
	form := typeNames.ReplaceAllString(fmt.Sprintf("%#v", p), "artifact.$1")
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", buildFormat, form))
	return hex.EncodeToString(sum[:8])
}

// writeFile replaces a file atomically and makes its directory.
func writeFile(name string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	return file.Replace(name, data, 0o644)
}
