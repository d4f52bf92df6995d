package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// importHeading begins the part of a resource's details that stands at the end of its page.
const importHeading = "\n## Import\n\n"

// addDetails writes what the folder resources says of each resource into its page, since a description in a schema is
// short: before the example or the schema, and what is below "## Import" at the end.
func addDetails(root string) error {
	names, err := filepath.Glob(filepath.Join(root, "internal", "pages", "resources", "*.md"))
	for _, name := range names {
		raw, failed := os.ReadFile(name)
		details, ofImport, _ := strings.Cut(string(raw), importHeading)
		err = errors.Join(err, failed, edit(filepath.Join(root, "docs", "resources", filepath.Base(name)), func(page string) (string, error) {
			at := strings.Index(page, "\n## Example Usage\n")
			if at < 0 {
				at = strings.Index(page, "\n<!-- schema generated")
			}
			if at < 0 {
				return "", errors.New("it has neither an example nor a schema")
			}
			page = page[:at] + "\n" + details + page[at:]
			if ofImport != "" {
				page += "\n" + ofImport
			}
			return page, nil
		}))
	}
	return err
}
