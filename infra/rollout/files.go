package rollout

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/lines"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

const (
	// maxText is how large a file may be of which the text is listed, and maxTexts how large all different texts
	// at one path. Of what is larger there are only digests.
	maxText  = 16 << 10
	maxTexts = 256 << 10
)

// emptyLines are not listed: they say nothing, and Terraform shows them as null.
var emptyLines = regexp.MustCompile(`\n\s*\n`)

// Files returns what will be on a role's machines, by path: the lines of a file that has a text but for empty ones, the digest
// of any other file ("sha256:<hex>"), of a program the digest of its download with its release, "issued by <common name>" for a certificate, and "from <names in the key store>" for
// a secret without a text. A line that is not on all machines begins with the names of those that have it. A text that hides something
// ends with the digest of the whole file. What depends on a download without a checksum is nil. It is pure.
func Files(want Role) (map[string][]string, error) {
	if err := checkRole(want); err != nil {
		return nil, err
	}
	r := want.Definition()
	var names []string
	var paths []string
	at := map[string][]entry{} // by path, one for each machine; the zero entry if it has no such file
	for i, t := range r.Targets {
		m, err := r.Machine(t.Node)
		if err != nil {
			return nil, fmt.Errorf("%s on %s: %w", r.Name, t.Node.Name, err)
		}
		names = append(names, t.Node.Name)
		for path, e := range entries(m, r.PKI) {
			if at[path] == nil {
				at[path] = make([]entry, len(r.Targets))
				paths = append(paths, path)
			}
			at[path][i] = e
		}
	}
	out := make(map[string][]string, len(paths))
	for _, path := range paths {
		out[path] = listed(names, at[path])
	}
	return out, nil
}

// entry is what is listed of one file on one machine.
type entry struct {
	there bool
	text  string // lines; empty if there is only a summary
	short string // the digest, or where the content comes from; empty if it is not known
}

// entries returns the entries of a machine by path.
func entries(m component.Machine, ref pki.Ref) map[string]entry {
	out := map[string]entry{}
	digest := func(hex string) entry {
		if hex == "" {
			return entry{there: true}
		}
		return entry{there: true, short: "sha256:" + hex}
	}
	for path, hex := range FileDigests(m.State) {
		out[path] = digest(hex)
	}
	for _, f := range m.State.Files {
		e, public := out[f.Path]
		if !public {
			continue
		}
		if e.text = listedText(f.Text); e.text != "" && f.Hides() {
			e.text += "\nwhole file, with its hidden values: " + e.short
		}
		out[f.Path] = e
	}
	for _, b := range m.State.Binaries {
		for _, i := range b.Installs {
			if e := out[i.Path]; e.short != "" {
				e.short = strings.TrimSpace(b.Name+" "+b.Version) + ", " + e.short
				out[i.Path] = e
			}
		}
	}
	if a := m.State.Authorities; a != "" {
		out[desired.AuthoritiesPath] = digest(desired.Sum([]byte(a)))
	}
	for _, s := range m.Certificates {
		out[s.CertPath] = entry{there: true, short: "issued by " + issuerOf(ref, s.CA)}
	}
	for _, s := range m.Secrets {
		out[s.Path] = entry{there: true, text: listedText(s.Text), short: "from " + s.Origin()}
	}
	return out
}

// listedText returns the lines that are listed of a text; empty if it is not listed.
func listedText(text []byte) string {
	if len(text) > maxText || !utf8.Valid(text) {
		return ""
	}
	return emptyLines.ReplaceAllString(strings.Trim(string(text), "\n"), "\n")
}

// listed returns what is listed of a path, from the entries of all machines.
func listed(names []string, all []entry) []string {
	for _, value := range []func(entry) string{func(e entry) string { return e.text }, func(e entry) string { return e.short }} {
		var texts []string // different ones
		size, complete, machines := 0, true, map[string][]int{}
		for i, e := range all {
			if !e.there {
				continue
			}
			text := value(e)
			complete = complete && text != ""
			if machines[text] == nil {
				texts = append(texts, text)
				size += len(text)
			}
			machines[text] = append(machines[text], i)
		}
		if complete && size <= maxTexts {
			return merge(names, texts, machines)
		}
	}
	return nil // a checksum is missing
}

// column is one place in the texts of several machines: each has one line there, or none.
type column struct {
	lines []string // different ones
	on    [][]int  // the machines of each line
}

func (c *column) add(line string, machines []int) {
	i := slices.Index(c.lines, line)
	if i < 0 {
		i = len(c.lines)
		c.lines, c.on = append(c.lines, line), append(c.on, nil)
	}
	c.on[i] = append(c.on[i], machines...)
}

// merge lays texts beside each other and returns their lines, each with the machines that have it if not all do.
func merge(names []string, texts []string, machines map[string][]int) []string {
	var columns []*column
	for _, text := range texts {
		columns = lay(columns, strings.Split(text, "\n"), machines[text])
	}
	out := make([]string, 0, len(columns))
	for _, c := range columns {
		for i, line := range c.lines {
			out = append(out, label(names, c.on[i])+line)
		}
	}
	return out
}

// label names the machines that have a line; it is empty if all of them do.
func label(names []string, on []int) string {
	if len(on) == len(names) {
		return ""
	}
	slices.Sort(on)
	have, lack := []string{}, []string{}
	for i, name := range names {
		if _, found := slices.BinarySearch(on, i); found {
			have = append(have, name)
		} else {
			lack = append(lack, name)
		}
	}
	if len(have) > len(lack) {
		return "[all but " + strings.Join(lack, " ") + "] "
	}
	return "[" + strings.Join(have, " ") + "] "
}

// lay adds the lines of some machines to columns: equal lines to the same column, as many as possible, and what differs
// between them side by side.
func lay(columns []*column, text []string, machines []int) []*column {
	var out []*column
	c, l := 0, 0
	different := func(toColumn, toLine int) {
		for ; c < toColumn || l < toLine; c, l = min(c+1, toColumn), min(l+1, toLine) {
			place := &column{}
			if c < toColumn {
				place = columns[c]
			}
			if l < toLine {
				place.add(text[l], machines)
			}
			out = append(out, place)
		}
	}
	for _, pair := range lines.Common(len(columns), len(text), func(i, j int) bool { return slices.Contains(columns[i].lines, text[j]) }) {
		different(pair[0], pair[1])
		columns[c].add(text[l], machines)
		out = append(out, columns[c])
		c, l = c+1, l+1
	}
	different(len(columns), len(text))
	return out
}

// issuerOf returns the common name of the authority that issues certificates now.
func issuerOf(ref pki.Ref, ca pki.CAName) string {
	name, err := pki.CommonName([]byte(ref.Bundle(ca)))
	if err != nil {
		return "the " + string(ca) + " CA"
	}
	return name
}

// FileDigests returns the digest of every public file with wanted content. For an installed program
// it is that of its download.
func FileDigests(s desired.State) map[string]string {
	out := map[string]string{}
	for _, f := range s.Files {
		if !f.Secret && !f.Once && f.Digest() != "" {
			out[f.Path] = f.Digest()
		}
	}
	for _, b := range s.Binaries {
		for _, i := range b.Installs {
			out[i.Path] = b.SHA256
		}
	}
	return out
}
