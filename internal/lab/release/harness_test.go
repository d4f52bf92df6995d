package release

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// moduleProxy is a directory with the layout of a Go module proxy. Tests build from it with the go
// command, without network.
type moduleProxy struct {
	t   *testing.T
	dir string
}

// newModuleProxy lets the go command use an empty proxy and an empty module cache during the test.
func newModuleProxy(t *testing.T) moduleProxy {
	t.Helper()
	p := moduleProxy{t, t.TempDir()}
	for name, value := range map[string]string{
		"GOPROXY": "file://" + p.dir, "GOSUMDB": "off", "GOFLAGS": "-modcacherw",
		"GOMODCACHE": t.TempDir(), "GONOPROXY": "none", "GOPRIVATE": "", "GOWORK": "off",
	} {
		t.Setenv(name, value)
	}
	return p
}

// add publishes a module with the files given by name.
func (p moduleProxy) add(path, version string, files map[string]string) {
	p.t.Helper()
	var archive bytes.Buffer
	zw := zip.NewWriter(&archive)
	for name, content := range files {
		w, err := zw.Create(path + "@" + version + "/" + name)
		must(p.t, err)
		_, err = w.Write([]byte(content))
		must(p.t, err)
	}
	must(p.t, zw.Close())
	for suffix, content := range map[string]string{
		".info": fmt.Sprintf(`{"Version":%q,"Time":"2026-01-02T03:04:05Z","Origin":{"Hash":"c0ffee"}}`, version),
		".mod":  files["go.mod"],
		".zip":  archive.String(),
	} {
		must(p.t, writeFile(filepath.Join(p.dir, path, "@v", version+suffix), []byte(content)))
	}
}

// addHello publishes a module with a command in a directory named like a major version. The command
// prints values that the linker sets.
func (p moduleProxy) addHello(version string) {
	p.t.Helper()
	p.add("example.test/staging", "v0.5.0", map[string]string{
		"go.mod": "module example.test/staging\n\ngo 1.24\n",
		"s.go":   "package staging\n\nvar Version = \"unset\"\n",
	})
	p.add("example.test/lib", "v1.2.3", map[string]string{
		"go.mod": "module example.test/lib\n\ngo 1.24\n",
		"l.go":   "package lib\n\nconst Name = \"lib\"\n",
	})
	p.add("example.test/hello", version, map[string]string{
		"go.mod": `module example.test/hello

go 1.24

toolchain go1.99.0

godebug panicnil=1

require (
	example.test/lib v1.2.3
	example.test/staging v0.0.0
)

replace (
	example.test/lib => ../lib
	example.test/staging => ./staging
	example.test/forbidden => ./FORBIDDEN
)

tool example.test/hello/tool
`,
		"v3/main.go": `package main

import (
	"fmt"

	"example.test/lib"
	"example.test/staging"
)

var commit, date string

func main() { fmt.Println(lib.Name, staging.Version, commit, date) }
`,
	})
}

// helloProduct is a product built from the module of addHello.
func helloProduct(version string) product {
	return product{
		name: "hello", version: version, base: "example.test/releases/" + version,
		archive: "hello.tgz", inside: "hello-dir", sums: "SHA256SUMS", published: true,
		modules: []module{{
			path: "example.test/hello", version: version, staging: "v0.5.0",
			programs: []program{{"hello", "example.test/hello/v3"}},
			vars:     []string{"example.test/staging.Version=v0.5.0", "main.commit={commit}", "main.date={time}"},
		}},
	}
}

// recorder collects progress lines.
type recorder struct {
	mu    sync.Mutex
	lines []string
}

func (l *recorder) print(s string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, s)
}

// count returns how many lines contain s.
func (l *recorder) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, line := range l.lines {
		if strings.Contains(line, s) {
			n++
		}
	}
	return n
}

// readArchive calls f with each entry of a gzipped tar.
func readArchive(t *testing.T, file string, f func(*tar.Header, io.Reader)) {
	t.Helper()
	in, err := os.Open(file)
	must(t, err)
	defer in.Close()
	zr, err := gzip.NewReader(in)
	must(t, err)
	readTar(t, zr, f)
}

func readTar(t *testing.T, r io.Reader, f func(*tar.Header, io.Reader)) {
	t.Helper()
	for tr := tar.NewReader(r); ; {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		must(t, err)
		f(h, tr)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, elem ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(elem...))
	must(t, err)
	return string(data)
}
