package codes

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the codes found in the sources into codes.txt")

func TestUnknown(t *testing.T) {
	got := Unknown([]string{"Zzz", "InvalidVpcID.NotFound", "Aaa", "Zzz"})
	if want := []string{"Aaa", "Zzz"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := Unknown(Known()); len(got) != 0 {
		t.Errorf("known and unknown: %q", got)
	}
}

// TestList compares the list with the sources of the local EC2.
func TestList(t *testing.T) {
	found := sources(t, "..").codes(t)
	if len(found) < 50 {
		t.Fatalf("only %d codes found in the sources: %q", len(found), found)
	}
	if *update {
		if err := os.WriteFile("codes.txt", []byte(strings.Join(found, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if !slices.Equal(Known(), found) {
		t.Errorf("codes.txt is not what the sources have: go test ./internal/lab/cloud/codes -update\nmissing: %q\ngone: %q", Unknown(found), without(Known(), found))
	}
}

func without(all, some []string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
}

// TestForms finds the code in every form in which a refusal is written.
func TestForms(t *testing.T) {
	dir := t.TempDir()
	const text = `package p
var a = kind{"vpc", "A.NotFound", "A.Malformed", "", ""}
func f() { wire.Refuse("B", ""); wire.RefuseWith(503, "C", ""); other.Refuse("not a code") }
var g = &wire.Error{Code: "D", Message: "m"}
func h(x int, code, message string) { wire.Refuse(code, message) }
func i() { h(1, "E", "m") }
`
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a_test.go"), []byte("package p\nvar x = wire.Refuse(\"T\", \"\")\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got := sources(t, dir).codes(t)
	if want := []string{"A.Malformed", "A.NotFound", "B", "C", "D", "E"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// tree is the syntax of the files of a directory and those below it, without tests.
type tree struct {
	files *token.FileSet
	parts []*ast.File
}

func sources(t *testing.T, dir string) tree {
	t.Helper()
	out := tree{files: token.NewFileSet()}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return err
		}
		f, err := parser.ParseFile(out.files, name, nil, parser.SkipObjectResolution)
		out.parts = append(out.parts, f)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// codes returns the code of every refusal. It fails the test at one whose code it cannot tell.
func (s tree) codes(t *testing.T) []string {
	t.Helper()
	found := map[string]bool{}
	passed := map[string]int{} // function -> which of its parameters is a code
	s.functions(func(f *ast.File, decl *ast.FuncDecl, n ast.Node) {
		switch n := n.(type) {
		case *ast.CompositeLit:
			for _, e := range codesOf(n) {
				add(found, e)
			}
		case *ast.CallExpr:
			e := refused(f, n)
			if e == nil || add(found, e) {
				return
			}
			if _, field := e.(*ast.SelectorExpr); field {
				return // of a kind or an error, whose literal has the code
			}
			i := parameter(decl, e)
			if i < 0 {
				t.Errorf("%s: cannot tell the code: write it as a literal, or teach this test its form", s.files.Position(n.Pos()))
				return
			}
			passed[decl.Name.Name] = i
		}
	})
	s.functions(func(_ *ast.File, _ *ast.FuncDecl, n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		if name, ok := call.Fun.(*ast.Ident); ok {
			if i, ok := passed[name.Name]; ok && !add(found, call.Args[i]) {
				t.Errorf("%s: cannot tell the code", s.files.Position(call.Pos()))
			}
		}
	})
	return slices.Sorted(maps.Keys(found))
}

// functions calls visit for everything in the files, with the function that it is in, if any.
func (s tree) functions(visit func(*ast.File, *ast.FuncDecl, ast.Node)) {
	for _, f := range s.parts {
		for _, d := range f.Decls {
			decl, _ := d.(*ast.FuncDecl)
			ast.Inspect(d, func(n ast.Node) bool {
				visit(f, decl, n)
				return true
			})
		}
	}
}

// refused returns the code of a call of wire.Refuse or wire.RefuseWith, nil of any other.
func refused(f *ast.File, call *ast.CallExpr) ast.Expr {
	name := ""
	switch fun := call.Fun.(type) {
	case *ast.Ident:
		if f.Name.Name == "wire" {
			name = fun.Name
		}
	case *ast.SelectorExpr:
		if x, ok := fun.X.(*ast.Ident); ok && x.Name == "wire" {
			name = fun.Sel.Name
		}
	}
	switch name {
	case "Refuse":
		return call.Args[0]
	case "RefuseWith":
		return call.Args[1]
	}
	return nil
}

// codesOf returns the codes in a literal of a kind or of an error.
func codesOf(lit *ast.CompositeLit) []ast.Expr {
	if name, ok := lit.Type.(*ast.Ident); ok && name.Name == "kind" && len(lit.Elts) > 2 {
		return lit.Elts[1:3]
	}
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			key, _ := kv.Key.(*ast.Ident)
			if typ, ok := lit.Type.(*ast.SelectorExpr); ok && typ.Sel.Name == "Error" && key != nil && key.Name == "Code" {
				return []ast.Expr{kv.Value}
			}
		}
	}
	return nil
}

// add adds a literal that is not empty, and reports whether it is a literal.
func add(found map[string]bool, e ast.Expr) bool {
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		return false
	}
	if s, err := strconv.Unquote(lit.Value); err == nil && s != "" {
		found[s] = true
	}
	return true
}

// parameter returns which parameter of a function an expression is, -1 if it is none.
func parameter(decl *ast.FuncDecl, e ast.Expr) int {
	name, ok := e.(*ast.Ident)
	if !ok || decl == nil {
		return -1
	}
	i := 0
	for _, field := range decl.Type.Params.List {
		for _, n := range field.Names {
			if n.Name == name.Name {
				return i
			}
			i++
		}
	}
	return -1
}
