package main

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// subcategories are all that a page may have, in the order of the index.
var subcategories = []string{
	"Start here",
	"Running a cluster",
	"Networks and endpoints",
	"Keys and access",
	"Your own machines",
	"The local EC2",
	"Reference",
}

// page is what the front matter of a page says.
type page struct {
	path        string // below docs/, such as "guides/drift.md"
	Title       string `json:"page_title"`
	Subcategory string `json:"subcategory"`
	Description string `json:"description"`
}

// readPages reads the front matter of all pages that a registry shows, except the index.
func readPages(docs string) ([]page, error) {
	var all []page
	err := filepath.WalkDir(docs, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(docs, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && rel == "design": // written by hand, for people who change the code
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".md" || rel == "index.md":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		p, err := frontMatter(text)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		p.path = filepath.ToSlash(rel)
		all = append(all, p)
		return nil
	})
	return all, err
}

func frontMatter(text []byte) (p page, err error) {
	rest, found := bytes.CutPrefix(text, []byte("---\n"))
	head, _, ends := bytes.Cut(rest, []byte("\n---\n"))
	if !found || !ends {
		return p, errors.New("no front matter")
	}
	return p, yaml.Unmarshal(head, &p)
}

// checkPages returns an error that names every page without a subcategory, with an unknown one, or without a title or
// a description.
func checkPages(all []page) (err error) {
	for _, p := range all {
		switch {
		case p.Subcategory == "":
			err = errors.Join(err, fmt.Errorf("docs/%s has no subcategory: set it in its template below templates/", p.path))
		case !slices.Contains(subcategories, p.Subcategory):
			err = errors.Join(err, fmt.Errorf("docs/%s has the unknown subcategory %q: known are %q", p.path, p.Subcategory, subcategories))
		}
		if strings.TrimSpace(p.Title) == "" || strings.TrimSpace(p.Description) == "" {
			err = errors.Join(err, fmt.Errorf("docs/%s has no title or no description", p.path))
		}
	}
	return err
}

// kinds are the folders of pages that tfplugindocs makes from schemas, and what a name in each is called.
var kinds = []struct{ dir, one, many string }{
	{"resources", "Resource", "Resources"},
	{"data-sources", "Data source", "Data sources"},
	{"ephemeral-resources", "Ephemeral resource", "Ephemeral resources"},
	{"actions", "Action", "Actions"},
	{"list-resources", "List resource", "List resources"},
	{"functions", "Function", "Functions"},
}

// lists has a heading for each subcategory. Below it stand the guides, with a line each, and a line for each kind of
// the other pages.
func lists(all []page) string {
	var b strings.Builder
	for _, s := range subcategories {
		fmt.Fprintf(&b, "### %s\n\n", s)
		of := func(dir string) []page {
			var out []page
			for _, p := range all {
				if p.Subcategory == s && strings.HasPrefix(p.path, dir+"/") {
					out = append(out, p)
				}
			}
			slices.SortFunc(out, func(a, b page) int { return cmp.Compare(order(a), order(b)) })
			return out
		}
		for _, p := range of("guides") {
			title, _, _ := strings.Cut(p.Title, ":")
			fmt.Fprintf(&b, "- [%s](%s). %s\n", title, p.path, oneLine(p.Description))
		}
		for _, k := range kinds {
			found := of(k.dir)
			if len(found) == 0 {
				continue
			}
			var names []string
			for _, p := range found {
				name, _, _ := strings.Cut(p.Title, " ")
				names = append(names, fmt.Sprintf("[`%s`](%s)", name, p.path))
			}
			fmt.Fprintf(&b, "- %s: %s\n", map[bool]string{true: k.one, false: k.many}[len(found) == 1], strings.Join(names, ", "))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// order is by title, but for the page for beginners, which comes first.
func order(p page) string {
	if p.path == "guides/first-cluster.md" {
		return ""
	}
	return strings.ToLower(p.Title)
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
