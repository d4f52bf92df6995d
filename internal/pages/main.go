// Command pages completes what tfplugindocs has written into docs/: details of resources, subcategories, the list of all pages
// in the index, and the tables of the guide "What is where", which come from the pure rendering in infra/component. It also puts blocks of
// examples/ha-cluster into the README. It fails when a page has no subcategory, or an unknown one. It runs in the root
// of the repository.
//
// What may not enter: I/O other than these files, and what a page says in prose, except the words on single items
// of the tables and the folder resources.
package main

import (
	"errors"
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
	if err := addDetails(root); err != nil {
		return err
	}
	all, err := readPages(filepath.Join(root, "docs"))
	if err != nil {
		return err
	}
	if err := stamp(filepath.Join(root, "docs"), all); err != nil {
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
	return errors.Join(
		edit(filepath.Join(root, "docs", "index.md"), func(text string) (string, error) { return fill(text, "## Pages\n", "## Example Usage\n", lists(all)) }),
		edit(filepath.Join(root, "README.md"), func(text string) (string, error) { return fill(text, excerptBegins, excerptEnds, excerptBegins+blocks) }))
}

// edit changes a file.
func edit(name string, change func(string) (string, error)) error {
	before, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	after, err := change(string(before))
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return file.Replace(name, []byte(after), 0o644)
}
