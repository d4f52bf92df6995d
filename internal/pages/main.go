// Command pages completes what tfplugindocs has written into docs/: the list of all pages in the index, and the
// tables of the guide "What is where", which come from the pure rendering in infra/component. It also puts blocks of
// examples/ha-cluster into the README. It fails when a page has no subcategory, or an unknown one. It runs in the root
// of the repository.
//
// What may not enter: I/O other than these files, and what a page says in prose, except the words on single items
// of the tables.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
)

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "pages:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	where, err := renderWhere(filepath.Join(root, "templates", "guides", "what-is-where.md"))
	if err != nil {
		return err
	}
	if err := file.Replace(filepath.Join(root, "docs", "guides", "what-is-where.md"), where, 0o644); err != nil {
		return err
	}
	all, err := readPages(filepath.Join(root, "docs"))
	if err != nil {
		return err
	}
	if err := checkPages(all); err != nil {
		return err
	}
	config, err := os.ReadFile(filepath.Join(root, "examples", "ha-cluster", "main.tf"))
	if err != nil {
		return err
	}
	blocks, err := excerpt(string(config))
	if err != nil {
		return err
	}
	for _, f := range []struct{ name, begins, with string }{
		{"docs/index.md", indexBegins, lists(all)},
		{"README.md", excerptBegins, blocks},
	} {
		name := filepath.Join(root, f.name)
		before, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		after, err := fill(f.name, string(before), f.begins, f.with)
		if err != nil {
			return err
		}
		if err := file.Replace(name, []byte(after), 0o644); err != nil {
			return err
		}
	}
	return nil
}
