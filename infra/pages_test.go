package infra_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pagedServices are the SDK's packages of the services whose answers come in pages, by the client's field.
var pagedServices = map[string]string{"EC2": "ec2", "SSM": "ssm", "ELB": "elasticloadbalancingv2"}

// TestEveryPageIsRead finds calls whose answer may have more pages, and that do not read them: with a paginator of the SDK,
// unless ids or names say what is asked for.
func TestEveryPageIsRead(t *testing.T) {
	paged := map[string]map[string]bool{}
	for field, service := range pagedServices {
		dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}", "github.com/aws/aws-sdk-go-v2/service/"+service).Output()
		if err != nil {
			t.Fatal(err)
		}
		paged[field] = paginators(t, strings.TrimSpace(string(dir)))
		if len(paged[field]) < 5 {
			t.Fatalf("only %d paginators of %s", len(paged[field]), service)
		}
	}
	calls := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		files := token.NewFileSet()
		f, err := parser.ParseFile(files, path, nil, 0)
		if err != nil {
			return err
		}
		found, bad := firstPageOnly(f, paged)
		calls += found
		for _, call := range bad {
			t.Errorf("%s: the answer may have more pages: use the paginator, as aws.All does", files.Position(call))
		}
		return nil
	})
	if err != nil || calls < 5 {
		t.Errorf("%d calls found, %v", calls, err)
	}
}

func TestFirstPageOnly(t *testing.T) {
	paged := map[string]map[string]bool{"EC2": {"DescribeVpcs": true}}
	for _, tt := range []struct {
		code string
		bad  int
	}{
		{`c.EC2.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{})`, 1},
		{`c.EC2.DescribeVpcs(ctx, in)`, 1},
		{`c.EC2.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{Filters: f}, opts)`, 1},
		{`c.EC2.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{VpcIds: ids})`, 0},
		{`ec2.NewDescribeVpcsPaginator(c.EC2, &ec2.DescribeVpcsInput{})`, 0},
		{`c.EC2.DescribeAddresses(ctx, &ec2.DescribeAddressesInput{})`, 0},
		{`c.ELB.DescribeVpcs(ctx, in)`, 0},
	} {
		f, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc _() { _, _ = "+tt.code+" }", 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, bad := firstPageOnly(f, paged); len(bad) != tt.bad {
			t.Errorf("%s: found %d", tt.code, len(bad))
		}
	}
}

// paginators returns the actions for which a package of the SDK has a paginator.
func paginators(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "api_op_*.go"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, name := range files {
		action := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(name), "api_op_"), ".go")
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), "func New"+action+"Paginator(") {
			out[action] = true
		}
	}
	return out
}

// firstPageOnly returns how many calls there are of actions with pages, and where one may read the first page only.
func firstPageOnly(f *ast.File, paged map[string]map[string]bool) (calls int, bad []token.Pos) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		action, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		client, ok := action.X.(*ast.SelectorExpr)
		if !ok || !paged[client.Sel.Name][action.Sel.Name] {
			return true
		}
		if calls++; len(call.Args) < 2 || !named(call.Args[1]) {
			bad = append(bad, call.Pos())
		}
		return true
	})
	return calls, bad
}

// named reports whether an input is written there, with ids or names of what is asked for.
func named(input ast.Expr) bool {
	if address, ok := input.(*ast.UnaryExpr); ok {
		input = address.X
	}
	literal, ok := input.(*ast.CompositeLit)
	if !ok {
		return false
	}
	for _, e := range literal.Elts {
		field, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		name, ok := field.Key.(*ast.Ident)
		if ok && (strings.HasSuffix(name.Name, "Ids") || strings.HasSuffix(name.Name, "Names") || strings.HasSuffix(name.Name, "Arns")) {
			return true
		}
	}
	return false
}
