package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"go/token"
	"maps"
	"math/big"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// everywhere is what every part reads without opening it itself: the versions of the modules, and the
// policies that k8s-lab gives to users.
var everywhere = []string{"go.mod", "examples/iam"}

// evidence is a directory in which the programs of a run leave what they executed, and its tests which
// files they opened.
type evidence struct{ dir string }

func (e evidence) counters() string { return filepath.Join(e.dir, "counters") }
func (e evidence) opened() string   { return filepath.Join(e.dir, "opened") }

func newEvidence() (evidence, error) {
	dir, err := os.MkdirTemp("/var/tmp", "k8s-soak-")
	e := evidence{dir}
	for _, d := range []string{e.counters(), e.opened()} {
		if err == nil {
			err = os.Mkdir(d, 0o755)
		}
	}
	return e, err
}

// witness becomes a test binary that leaves evidence. It is the program of go test -exec.
func witness(dir string, command []string) error {
	at, err := os.Getwd()
	if err != nil {
		return err
	}
	e := evidence{dir}
	log := filepath.Join(e.opened(), fmt.Sprintf("%d %s", os.Getpid(), url.PathEscape(at)))
	if err := os.Setenv("GOCOVERDIR", e.counters()); err != nil { // go test has set another one
		return err
	}
	return syscall.Exec(command[0], append(command, "-test.gocoverdir="+e.counters(), "-test.testlogfile="+log), os.Environ())
}

// covers returns what a run covers, as keys of tree.digest, and which functions of packages ran.
func (e evidence) covers(ctx context.Context, t *tree, p part) (map[string]*big.Int, error) {
	profile := filepath.Join(e.dir, "profile")
	if _, err := output(ctx, t.root, "go", "tool", "covdata", "textfmt", "-i", e.counters(), "-o", profile); err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(profile)
	if err != nil {
		return nil, err
	}
	covers, err := t.executed(raw)
	if err != nil {
		return nil, err
	}
	if p.chance {
		for dir := range covers {
			covers[dir] = nil
		}
	}
	for _, dir := range p.tested() {
		if _, found := covers[dir]; !found { // a package that has nothing but tests
			covers[dir] = nil
		}
	}
	files, err := e.reads(t)
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		if !slices.ContainsFunc(p.tested(), func(dir string) bool { return f == dir+"/" || strings.HasPrefix(f, dir+"/testdata/") }) {
			covers[f] = nil
		}
	}
	for _, name := range slices.Concat(everywhere, p.reads) {
		for _, f := range t.below(name) {
			covers[f] = nil
		}
		if len(t.names(name)) > 0 {
			covers[name+"/"] = nil
		}
	}
	return covers, nil
}

// executed returns the packages of which a profile has executed statements, and those that they import, with
// a bit for each of their functions: whether any of its statements was executed. Functions that the profile lacks count
// as executed.
func (t *tree) executed(profile []byte) (map[string]*big.Int, error) {
	blocks := map[string]map[token.Position]bool{} // by file, where they begin
	ran := map[string]*big.Int{}
	for line := range strings.Lines(string(profile)) {
		name, block, found := strings.Cut(line, ":")
		dir, ours := t.dirs[path.Dir(name)]
		if !found || !ours {
			continue
		}
		var at token.Position
		var toLine, toColumn, statements, count int
		if _, err := fmt.Sscanf(block, "%d.%d,%d.%d %d %d", &at.Line, &at.Column, &toLine, &toColumn, &statements, &count); err != nil {
			return nil, fmt.Errorf("a profile with the line %q: %w", line, err)
		}
		name = path.Join(dir, path.Base(name))
		if blocks[name] == nil {
			blocks[name] = map[token.Position]bool{}
		}
		blocks[name][at] = blocks[name][at] || count > 0
		if count > 0 {
			ran[dir] = new(big.Int)
		}
	}
	// What a package imports counts although nothing of it was executed: constants, variables, and embedded
	// files.
	for more := slices.Collect(maps.Keys(ran)); len(more) > 0; more = more[1:] {
		for _, name := range t.packages[more[0]].Imports {
			if dir, ours := t.dirs[name]; ours && ran[dir] == nil {
				ran[dir], more = new(big.Int), append(more, dir)
			}
		}
	}
	for dir, bits := range ran {
		for i, f := range t.functions(dir) {
			known, executed := false, false
			for at, is := range blocks[f.file] {
				if !before(at, f.from) && before(at, f.to) {
					known, executed = true, executed || is
				}
			}
			if executed || !known {
				bits.SetBit(bits, i, 1)
			}
		}
	}
	return ran, nil
}

func before(a, b token.Position) bool {
	return a.Line < b.Line || a.Line == b.Line && a.Column < b.Column
}

// reads returns the files and directories of the tree that tests opened.
func (e evidence) reads(t *tree) ([]string, error) {
	logs, err := os.ReadDir(e.opened())
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, log := range logs {
		_, escaped, _ := strings.Cut(log.Name(), " ")
		at, err := url.PathUnescape(escaped)
		if err != nil {
			return nil, err
		}
		raw, err := os.ReadFile(filepath.Join(e.opened(), log.Name()))
		if err != nil {
			return nil, err
		}
		for s := bufio.NewScanner(bytes.NewReader(raw)); s.Scan(); {
			op, name, _ := strings.Cut(s.Text(), " ")
			if !filepath.IsAbs(name) {
				name = filepath.Join(at, name)
			}
			if op == "chdir" {
				at = name
			}
			rel, err := filepath.Rel(t.root, name)
			if op != "open" || err != nil || rel == "." {
				continue
			}
			if _, committed := slices.BinarySearch(t.files, rel); committed {
				found[rel] = true
			} else if len(t.names(rel)) > 0 {
				found[rel+"/"] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}
