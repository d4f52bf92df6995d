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

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
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

// made are the pages that come from schemas. Their templates have no subcategory. Guides have it in their own front
// matter.
var made = map[string][]string{
	"Running a cluster":      {"k8s_addon", "k8s_cluster_status", "k8s_control_plane", "k8s_etcd_backup", "k8s_etcd_cluster", "k8s_etcd_snapshot", "k8s_image", "k8s_machine", "k8s_volume", "k8s_worker_pool", "version_problems"},
	"Networks and endpoints": {"k8s_lb", "k8s_network", "k8s_nlb", "machine_address", "network_problems", "pod_cidr", "worker_addresses"},
	"Keys and access":        {"k8s_kubeconfig", "k8s_pki", "k8s_pki_copy", "k8s_workload_identity", "issuer_documents"},
}

// page is what the front matter of a page says.
type page struct {
	path        string // below docs/, such as "guides/drift.md"
	Title       string `json:"page_title"`
	Subcategory string `json:"subcategory"`
	Description string `json:"description"`
}

// name is the resource, data source, action or function of a page that comes from a schema.
func (p page) name() string {
	name, _, _ := strings.Cut(p.Title, " ")
	return name
}

// stamp sets the subcategories of the pages that come from schemas. A page that it does not know keeps what it has,
// and checkPages refuses it.
func stamp(docs string, all []page) error {
	for i, p := range all {
		for subcategory, names := range made {
			if strings.HasPrefix(p.path, "guides/") || !slices.Contains(names, p.name()) {
				continue
			}
			name := filepath.Join(docs, filepath.FromSlash(p.path))
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			before, after, found := bytes.Cut(text, []byte("\nsubcategory: \""+p.Subcategory+"\"\n"))
			if !found {
				return fmt.Errorf("docs/%s has no line for its subcategory", p.path)
			}
			text = slices.Concat(before, []byte("\nsubcategory: \""+subcategory+"\"\n"), after)
			if err := file.Replace(name, text, 0o644); err != nil {
				return err
			}
			all[i].Subcategory = subcategory
		}
	}
	return nil
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
			err = errors.Join(err, fmt.Errorf("docs/%s has no subcategory: a guide has it in its template, other pages in internal/pages/subcategories.go", p.path))
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
	b.WriteString("## Pages\n\n")
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
				names = append(names, fmt.Sprintf("[`%s`](%s)", p.name(), p.path))
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
