package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"io"
	"io/fs"
	"maps"
	"math/big"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// tree is the sources below a root directory, as they were when it was read.
type tree struct {
	root     string
	packages map[string]pkg    // by directory
	dirs     map[string]string // of packages, by import path
	files    []string          // what is committed or could be, sorted
	texts    map[string][]byte // of these files
}

// pkg is what go list says of a package.
type pkg struct {
	Dir, ImportPath                                                                 string
	GoFiles, EmbedFiles, TestGoFiles, TestEmbedFiles, XTestGoFiles, XTestEmbedFiles []string
	Imports                                                                         []string
}

func readTree(ctx context.Context, root string) (*tree, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	t := &tree{root: root, packages: map[string]pkg{}, dirs: map[string]string{}, texts: map[string][]byte{}}
	listed, err := output(ctx, root, "go", "list", "-json=Dir,ImportPath,Imports,GoFiles,EmbedFiles,TestGoFiles,TestEmbedFiles,XTestGoFiles,XTestEmbedFiles", "./...")
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(bytes.NewReader(listed)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		dir, err := filepath.Rel(root, p.Dir)
		if err != nil {
			return nil, err
		}
		t.packages[dir], t.dirs[p.ImportPath] = p, dir
	}
	names, err := output(ctx, root, "git", "ls-files", "-co", "--exclude-standard", "-z")
	if err != nil {
		return nil, err
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(names), "\x00"), "\x00") {
		text, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) { // git still knows it
			continue
		} else if err != nil {
			return nil, err
		}
		t.texts[name] = text
	}
	t.files = slices.Sorted(maps.Keys(t.texts))
	return t, nil
}

func output(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return out, nil
}

// below returns the files in and below a directory, or the file of this name.
func (t *tree) below(name string) []string {
	return slices.DeleteFunc(slices.Clone(t.files), func(f string) bool { return f != name && !strings.HasPrefix(f, name+"/") })
}

// digest returns a digest of what a key stands for, or "" if that does not exist. A key is the
// directory of a package, a file, or a directory with a slash at its end, which stands for the
// names in it. For a package, tests says whether its tests count too, and ran has a bit for each of
// t.functions: the bodies of functions whose bit is 0 do not count. Everything counts if ran is
// nil.
func (t *tree) digest(key string, tests bool, ran *big.Int) string {
	h := sha256.New()
	if dir, listing := strings.CutSuffix(key, "/"); listing {
		for _, name := range t.names(dir) {
			_, _ = fmt.Fprintln(h, name)
		}
		return short(h.Sum(nil))
	}
	files := []string{key}
	idle := map[string][]body{}
	if p, found := t.packages[key]; found {
		files = t.of(key, p, tests)
		for i, f := range t.functions(key) {
			if ran != nil && ran.Bit(i) == 0 {
				idle[f.file] = append(idle[f.file], f)
			}
		}
	}
	for _, name := range files {
		src, found := t.texts[name]
		if !found {
			return ""
		}
		if strings.HasSuffix(name, ".go") {
			src = code(src, idle[name])
		}
		_, _ = fmt.Fprintf(h, "%s %d\n%s", name, len(src), src)
	}
	return short(h.Sum(nil))
}

func short(sum []byte) string { return hex.EncodeToString(sum[:6]) }

// of returns the files of a package. Those of its tests include everything in testdata.
func (t *tree) of(dir string, p pkg, tests bool) []string {
	names := slices.Concat(p.GoFiles, p.EmbedFiles)
	if tests {
		names = slices.Concat(names, p.TestGoFiles, p.TestEmbedFiles, p.XTestGoFiles, p.XTestEmbedFiles)
	}
	var files []string
	for _, name := range names {
		files = append(files, path.Join(dir, name))
	}
	if tests {
		files = append(files, t.below(path.Join(dir, "testdata"))...)
	}
	return slices.Compact(slices.Sorted(slices.Values(files)))
}

// names returns the names in a directory.
func (t *tree) names(dir string) []string {
	var names []string
	for _, f := range t.files {
		if rest, in := strings.CutPrefix(f, dir+"/"); in {
			name, _, _ := strings.Cut(rest, "/")
			names = append(names, name)
		}
	}
	return slices.Compact(names)
}

// body is the body of a function of a package.
type body struct {
	file     string
	from, to token.Position // of its braces
}

// functions returns the bodies of the functions of a package, in the order of its files, without tests.
// The order stays the same while the package's digest does, since declarations always count.
func (t *tree) functions(dir string) (all []body) {
	for _, name := range slices.Sorted(slices.Values(t.packages[dir].GoFiles)) {
		name = path.Join(dir, name)
		fset := token.NewFileSet()
		parsed, err := parser.ParseFile(fset, name, t.texts[name], parser.SkipObjectResolution)
		if err != nil {
			continue // go list has read it, so it was changed at this moment
		}
		for _, d := range parsed.Decls {
			if f, is := d.(*ast.FuncDecl); is && f.Body != nil {
				all = append(all, body{name, fset.Position(f.Body.Lbrace), fset.Position(f.Body.Rbrace)})
			}
		}
	}
	return all
}

// code returns the tokens of a Go file, without comments and layout, but with directives, and without
// some bodies.
func code(src []byte, without []body) []byte {
	var out bytes.Buffer
	var s scanner.Scanner
	file := token.NewFileSet().AddFile("", -1, len(src))
	s.Init(file, src, nil, scanner.ScanComments)
	for {
		pos, tok, text := s.Scan()
		switch at := file.Offset(pos); {
		case tok == token.EOF:
			return out.Bytes()
		case tok == token.COMMENT && !strings.HasPrefix(text, "//go:"):
		case slices.ContainsFunc(without, func(b body) bool { return b.from.Offset < at && at < b.to.Offset }):
		default:
			if text == "" || tok == token.SEMICOLON {
				text = tok.String()
			}
			out.WriteString(text + "\n")
		}
	}
}
