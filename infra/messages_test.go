package infra_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestNoMessageIsTakenApart finds code that depends on the message of an error: a function of
// package strings, or a regular expression, applied to the result of Error. Only the messages.go of
// a package may do that.
func TestNoMessageIsTakenApart(t *testing.T) {
	for _, root := range []string{".", "../internal/provider"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || d.Name() == "messages.go" {
				return err
			}
			files := token.NewFileSet()
			f, err := parser.ParseFile(files, path, nil, 0)
			if err != nil {
				return err
			}
			for _, call := range takenApart(f) {
				t.Errorf("%s: an error's message is for people: give the error a field, or read what a program said in messages.go", files.Position(call))
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestTakenApart(t *testing.T) {
	for _, tt := range []struct {
		code  string
		found int
	}{
		{`strings.Contains(err.Error(), "x")`, 1},
		{`strings.Cut(strings.ToLower(f().Error()), "x")`, 2},
		{`pattern.MatchString("a: " + err.Error())`, 1},
		{`pattern.FindAllStringSubmatch(err.Error(), -1)`, 1},
		{`err.Error() == "x"`, 1},
		{`strings.Join([]string{err.Error()}, "; ")`, 0},
		{`strings.TrimSuffix(err.Error(), ".") + "!"`, 1},
		{`fmt.Sprint(err.Error())`, 0},
		{`strings.Contains(said, "x")`, 0},
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc _() { _ = "+tt.code+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := len(takenApart(f)); got != tt.found {
			t.Errorf("%s: found %d", tt.code, got)
		}
	}
}

// takenApart returns where a message is looked into: by a function of package strings other than
// Join, by a regular expression, or by comparison with a constant.
func takenApart(f *ast.File) []token.Pos {
	var out []token.Pos
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			fun, ok := n.Fun.(*ast.SelectorExpr)
			if !ok || !slices.ContainsFunc(n.Args, hasMessage) {
				break
			}
			pkg, _ := fun.X.(*ast.Ident)
			name := fun.Sel.Name
			if pkg != nil && pkg.Name == "strings" && name != "Join" || strings.HasPrefix(name, "Match") || strings.HasPrefix(name, "Find") {
				out = append(out, n.Pos())
			}
		case *ast.BinaryExpr:
			_, left := n.X.(*ast.BasicLit)
			_, right := n.Y.(*ast.BasicLit)
			if (n.Op == token.EQL || n.Op == token.NEQ) && (left && hasMessage(n.Y) || right && hasMessage(n.X)) {
				out = append(out, n.Pos())
			}
		}
		return true
	})
	return out
}

// hasMessage tells whether an expression has a call of a method Error in it.
func hasMessage(e ast.Expr) bool {
	found := false
	ast.Inspect(e, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok && len(call.Args) == 0 {
			if fun, ok := call.Fun.(*ast.SelectorExpr); ok && fun.Sel.Name == "Error" {
				found = true
			}
		}
		return !found
	})
	return found
}
