package main

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// Every page that a registry shows has one of the known subcategories.
func TestSubcategories(t *testing.T) {
	all, err := readPages(filepath.Join(root, "docs"))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 40 {
		t.Fatalf("only %d pages found", len(all))
	}
	if err := checkPages(all); err != nil {
		t.Error(err)
	}
	for _, s := range subcategories {
		if !slices.ContainsFunc(all, func(p page) bool { return p.Subcategory == s }) {
			t.Errorf("no page has the subcategory %q", s)
		}
	}
}

func TestSubcategoriesRefused(t *testing.T) {
	for front, want := range map[string]string{
		"page_title: A\nsubcategory: \"\"\ndescription: B":           "has no subcategory",
		"page_title: A\ndescription: B":                              "has no subcategory",
		"page_title: A\nsubcategory: Other things\ndescription: B":   "unknown subcategory",
		"page_title: A\nsubcategory: Reference\ndescription: \"  \"": "no description",
		"page_title: A\nsubcategory: Reference\ndescription: B":      "",
	} {
		p, err := frontMatter([]byte("---\n" + front + "\n---\n\n# A\n"))
		if err != nil {
			t.Fatal(err)
		}
		p.path = "guides/a.md"
		err = checkPages([]page{p})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", front, err, want)
		}
	}
	if _, err := frontMatter([]byte("# A\n")); err == nil {
		t.Error("a page without front matter is accepted")
	}
}

// Pages that come from schemas get their subcategories, and no page is in the table twice or in vain.
func TestStamp(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "resources", "lb.md")
	if err := os.Mkdir(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	text := "---\npage_title: \"k8s_lb Resource - k8s\"\nsubcategory: \"\"\ndescription: |-\n  HAProxy\n---\n\nsubcategory: \"\"\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		all, err := readPages(dir)
		if err == nil {
			err = stamp(dir, all)
		}
		if err == nil {
			err = checkPages(all)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(file)
	if want := strings.Replace(text, `""`, `"Networks and endpoints"`, 1); err != nil || string(got) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, got, want)
	}
	seen := map[string]bool{}
	for subcategory, names := range made {
		if !slices.Contains(subcategories, subcategory) {
			t.Errorf("unknown subcategory %q", subcategory)
		}
		for _, name := range names {
			if seen[name] {
				t.Errorf("%s is in two subcategories", name)
			}
			seen[name] = true
		}
	}
	all, err := readPages(filepath.Join(root, "docs"))
	if err != nil {
		t.Fatal(err)
	}
	for name := range seen {
		if name != "k8s_etcd_snapshot" && !slices.ContainsFunc(all, func(p page) bool { return p.name() == name }) {
			t.Errorf("%s has no page", name)
		}
	}
}

// The index and the README name every subcategory, and the index every page.
func TestIndex(t *testing.T) {
	all, err := readPages(filepath.Join(root, "docs"))
	if err != nil {
		t.Fatal(err)
	}
	index, readme := read(t, "docs/index.md"), read(t, "README.md")
	for _, p := range all {
		if !strings.Contains(index, "]("+p.path+")") {
			t.Errorf("docs/index.md does not name %s", p.path)
		}
	}
	for _, s := range subcategories {
		if !strings.Contains(index, "\n### "+s+"\n") {
			t.Errorf("docs/index.md has no heading %q", s)
		}
		if !strings.Contains(readme, "**"+s+"**") {
			t.Errorf("README.md does not name %q", s)
		}
	}
}

// The README shows blocks of the example as they are, and a second run changes nothing.
func TestExcerpt(t *testing.T) {
	config := read(t, "examples/ha-cluster/main.tf")
	blocks, err := excerpt(config)
	if err != nil {
		t.Fatal(err)
	}
	want := "before\n\n" + excerptBegins + blocks + excerptEnds + "after\n"
	for _, was := range []string{"before\n" + excerptEnds + "after\n", "before\n\n" + excerptBegins + "old\n" + excerptEnds + "after\n", want} {
		if got, err := fill(was, excerptBegins, excerptEnds, excerptBegins+blocks); err != nil || got != want {
			t.Errorf("%q becomes %q, %v, want %q", was, got, err, want)
		}
	}
	if !strings.Contains(read(t, "README.md"), blocks) {
		t.Error("README.md does not show examples/ha-cluster/main.tf as it is: make docs")
	}
	if _, err := excerpt(strings.ReplaceAll(config, "k8s_worker_pool", "k8s_pool")); err == nil {
		t.Error("an example without the block is accepted")
	}
	if _, err := fill("nothing", excerptBegins, excerptEnds, blocks); err == nil {
		t.Error("a README without the place is accepted")
	}
}

// An item without words, and words without an item, stop the generator.
func TestWordsAreComplete(t *testing.T) {
	render := func() error {
		_, err := renderWhere(filepath.Join(root, "templates/guides/what-is-where.md"))
		return err
	}
	if err := render(); err != nil {
		t.Fatal(err)
	}
	const key, gone = "flag etcd --name", "flag etcd --gone"
	kept := words[key]
	defer func() { words[key] = kept }()
	delete(words, key)
	if err := render(); err == nil || !strings.Contains(err.Error(), key) {
		t.Errorf("without words on %s: %v", key, err)
	}
	words[key], words[gone] = kept, "-"
	defer delete(words, gone)
	if err := render(); err == nil || !strings.Contains(err.Error(), gone) {
		t.Errorf("with words on %s: %v", gone, err)
	}
}

// A port that a file sets is in that file.
func TestPorts(t *testing.T) {
	list, err := machines()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range allPorts {
		i := slices.IndexFunc(list, func(m machine) bool { return m.name == p.machine })
		if i < 0 {
			t.Errorf("no machine %s", p.machine)
			continue
		}
		if p.file != "" && (p.text == "" || !strings.Contains(list[i].text(p.file), p.text)) {
			t.Errorf("%s of %s does not say %q", p.file, p.machine, p.text)
		}
	}
}

var (
	link  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	block = regexp.MustCompile("(?s)```.*?```")
)

// Links between files of the repository lead somewhere.
func TestLinks(t *testing.T) {
	files := []string{"README.md", "DESIGN.md", "CONTRIBUTING.md", "CHANGELOG.md"}
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, _ fs.DirEntry, err error) error {
		if rel, _ := filepath.Rel(root, path); filepath.Ext(path) == ".md" {
			files = append(files, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	links := 0
	for _, file := range files {
		for _, found := range link.FindAllStringSubmatch(block.ReplaceAllString(read(t, file), ""), -1) {
			u, err := url.Parse(found[1])
			if err != nil || u.IsAbs() {
				continue
			}
			links++
			to := file
			if u.Path != "" {
				to = filepath.Join(filepath.Dir(file), u.Path)
			}
			if _, err := os.Stat(filepath.Join(root, to)); errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s links to %s, which does not exist", file, found[1])
				continue
			}
			if u.Fragment != "" && filepath.Ext(to) == ".md" && !slices.Contains(anchors(read(t, to)), u.Fragment) {
				t.Errorf("%s links to %s, and there is no such heading", file, found[1])
			}
		}
	}
	if links < 100 {
		t.Errorf("only %d links found", links)
	}
}

var notInAnchors = regexp.MustCompile(`[^\p{L}\p{N} _-]`)

// anchors are those of headings, as GitHub makes them, and those that tfplugindocs writes.
func anchors(text string) []string {
	var out []string
	for line := range strings.Lines(text) {
		if heading, found := strings.CutPrefix(strings.TrimLeft(line, "#"), " "); found && strings.HasPrefix(line, "#") {
			out = append(out, strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), ""), " ", "-"))
		}
		if _, rest, found := strings.Cut(line, `<a id="`); found {
			id, _, _ := strings.Cut(rest, `"`)
			out = append(out, id)
		}
	}
	return out
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var inCode = regexp.MustCompile("`([^`]+)`")

// What the guide "From kubeadm" names exists: arguments in the pages of their resources, and files on machines.
func TestKubeadm(t *testing.T) {
	_, guide, _ := strings.Cut(read(t, "docs/guides/from-kubeadm.md"), "\n## Files\n")
	files, guide, _ := strings.Cut(guide, "\n## ClusterConfiguration and HCL\n")
	arguments, _, _ := strings.Cut(guide, "\nFor example:\n")

	list, err := machines()
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, m := range list {
		for _, items := range [][]item{m.files(), m.certificates(), m.directories()} {
			for _, i := range items {
				_, path, _ := strings.Cut(i.key, " ")
				paths = append(paths, path, strings.TrimSuffix(path, ".crt")+".key")
			}
		}
	}
	checked := 0
	for _, row := range secondCells(files) {
		for _, name := range inCode.FindAllStringSubmatch(row, -1) {
			checked++
			if !slices.ContainsFunc(paths, func(p string) bool { return p == strings.TrimSuffix(name[1], "/") || filepath.Base(p) == name[1] }) {
				t.Errorf("no machine has %s", name[1])
			}
		}
	}
	for _, row := range secondCells(arguments) {
		var pages string
		for _, name := range inCode.FindAllStringSubmatch(row, -1) {
			if resource, found := strings.CutPrefix(name[1], "k8s_"); found {
				pages += read(t, "docs/resources/"+resource+".md")
			}
		}
		for _, name := range inCode.FindAllStringSubmatch(row, -1) {
			checked++
			if !strings.HasPrefix(name[1], "k8s_") && !strings.Contains(pages, "\n- `"+name[1]+"` (") {
				t.Errorf("none of the resources of %q has the argument %s", row, name[1])
			}
		}
	}
	if checked < 30 {
		t.Errorf("only %d names found", checked)
	}
}

// secondCells are those of a table's rows.
func secondCells(text string) (out []string) {
	for line := range strings.Lines(text) {
		if cells := strings.Split(line, " | "); strings.HasPrefix(line, "| ") && len(cells) > 1 {
			out = append(out, cells[1])
		}
	}
	return out
}
