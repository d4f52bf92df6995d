// Package setting says of every flag of the programs of a cluster, and of every field of their configuration
// files, what it means to set it. The names are generated from the programs themselves; one that a new release
// brings is unclassified until somebody has looked at it, and a test of package flags fails as long. HAProxy,
// keepalived and runc are not listed: users set nothing of them but by arguments.
//
// What may not enter: the rules of single values (package component), I/O, other packages of this repository.
package setting

import (
	"embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// Kind is what a name is the name of.
type Kind string

// The kinds.
const (
	Flag  Kind = "flag"  // of the command line, without dashes
	Field Kind = "field" // of the configuration file, by its path: "authentication.x509.clientCAFile"
)

// Class is what it means to set something.
type Class string

// The classes.
const (
	// Free is a setting that needs nothing but a restart of the program. What it does not accept, the program says
	// itself when it is rehearsed.
	Free Class = "free"
	// Needs is a setting that needs another one, of which the program says too late, or never, that it is missing.
	// Package component checks it.
	Needs Class = "needs"
	// Fixed is a setting of a new cluster. What has been stored by the former value would stay behind.
	Fixed Class = "fixed"
	// EmptyNode is a setting by which pods are placed or kept: its node is drained, and what the kubelet has noted
	// by the former value is removed.
	EmptyNode Class = "empty-node"
	// Pinned is EmptyNode while a kubelet gives processors or memory to single pods.
	Pinned Class = "pinned"
	// Owned is a setting of the provider. With another value the cluster breaks.
	Owned Class = "owned"
	// Elsewhere is a setting with an argument, or a field, that is to be used instead.
	Elsewhere Class = "elsewhere"
	// Unclassified is what nobody has looked at.
	Unclassified Class = "unclassified"
)

var classes = []Class{Free, Needs, Fixed, EmptyNode, Pinned, Owned, Elsewhere, Unclassified}

// Entry is what is known of one flag or field.
type Entry struct {
	Class Class
	Use   string // of Elsewhere: what is to be used instead
}

// List is everything that can be set of one program.
type List map[Kind]map[string]Entry

//go:embed *.txt
var files embed.FS

var lists = sync.OnceValue(func() map[string]List {
	entries, _ := files.ReadDir(".") // it is embedded
	out := map[string]List{}
	for _, e := range entries {
		text, _ := files.ReadFile(e.Name())
		l, err := Parse(string(text))
		if err != nil {
			panic(fmt.Errorf("%s: %w", e.Name(), err)) // TestFiles parses every file
		}
		out[strings.TrimSuffix(e.Name(), ".txt")] = l
	}
	return out
})

// Of returns the list of a program, such as "kube-apiserver"; nil if there is none.
func Of(program string) List { return lists()[program] }

// Names returns the names of a kind in a class, sorted.
func (l List) Names(kind Kind, class Class) []string {
	var out []string
	for name, e := range l[kind] {
		if e.Class == class {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Update makes names those of a kind: new ones are unclassified, and others go.
func (l List) Update(kind Kind, names []string) {
	now := map[string]Entry{}
	for _, name := range names {
		now[name] = Entry{Class: Unclassified}
		if e, known := l[kind][name]; known {
			now[name] = e
		}
	}
	l[kind] = now
}

// Parse reads a list. A line in brackets says the kind and the class of the names below it, and what is to be used
// instead; a line that begins with # is a comment.
func Parse(text string) (List, error) {
	out := List{}
	var kind Kind
	var entry Entry
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") {
			continue
		}
		if head, ok := strings.CutPrefix(line, "["); ok {
			k, rest, _ := strings.Cut(strings.TrimSuffix(head, "]"), " ")
			class, use, _ := strings.Cut(rest, " ")
			kind, entry = Kind(k), Entry{Class(class), use}
			if kind != Flag && kind != Field || !slices.Contains(classes, entry.Class) || (entry.Class == Elsewhere) != (use != "") {
				return nil, fmt.Errorf("no such class: %s", line)
			}
			continue
		}
		for _, name := range strings.Fields(line) {
			if _, twice := out[kind][name]; twice || kind == "" {
				return nil, fmt.Errorf("%s is given twice, or has no class", name)
			}
			if out[kind] == nil {
				out[kind] = map[string]Entry{}
			}
			out[kind][name] = entry
		}
	}
	return out, nil
}

// width is that of the lines of a list.
const width = 150

// String is the inverse of [Parse].
func (l List) String() string {
	var b strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(l)) {
		groups := map[Entry][]string{}
		for _, name := range slices.Sorted(maps.Keys(l[kind])) {
			groups[l[kind][name]] = append(groups[l[kind][name]], name)
		}
		for _, e := range slices.SortedFunc(maps.Keys(groups), func(a, b Entry) int {
			return strings.Compare(fmt.Sprint(slices.Index(classes, a.Class), a.Use), fmt.Sprint(slices.Index(classes, b.Class), b.Use))
		}) {
			fmt.Fprintf(&b, "\n[%s]\n", strings.TrimSpace(string(kind)+" "+string(e.Class)+" "+e.Use))
			wrap(&b, groups[e])
		}
	}
	return b.String()
}

func wrap(b *strings.Builder, words []string) {
	column := 0
	for _, w := range words {
		switch {
		case column == 0:
		case column+1+len(w) > width:
			b.WriteByte('\n')
			column = 0
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(w)
		column += len(w)
	}
	b.WriteByte('\n')
}
