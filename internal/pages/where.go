package main

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"text/template"
)

// where fills the tables of the guide "What is where".
type where struct {
	machines map[string]machine
	used     map[string]bool // keys of words
	missing  []string        // items without words
}

// renderWhere renders the guide's template. It fails when an item has no words, and when words have no item: then
// the page would miss a file, or speak of one that is gone.
func renderWhere(templateFile string) ([]byte, error) {
	raw, err := os.ReadFile(templateFile)
	if err != nil {
		return nil, err
	}
	list, err := machines()
	if err != nil {
		return nil, err
	}
	w := &where{machines: map[string]machine{}, used: map[string]bool{}}
	for _, m := range list {
		w.machines[m.name] = m
	}
	t, err := template.New(templateFile).Funcs(w.functions()).Parse(string(raw))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	if err := t.Execute(&out, nil); err != nil {
		return nil, err
	}
	return out.Bytes(), w.check()
}

func (w *where) functions() template.FuncMap {
	table := func(items func(machine) []item, headings ...string) func(string) (string, error) {
		return func(name string) (string, error) {
			m, found := w.machines[name]
			if !found {
				return "", fmt.Errorf("no machine %q", name)
			}
			return w.table(headings, items(m)), nil
		}
	}
	return template.FuncMap{
		"files":        table(machine.files, "file", "mode", "content", "what it is"),
		"programs":     table(machine.programs, "program", "release", "what it is"),
		"directories":  table(machine.directories, "directory", "mode", "what it holds"),
		"units":        table(machine.units, "unit", "after", "restarts when this changes", "reloads when this changes", "what it is"),
		"settings":     table(machine.settings, "line", "units", "why"),
		"certificates": table(machine.certificates, "certificate", "key beside it", "authority", "subject", "names", "for", "what it is"),
		"ports":        table(machine.ports, "address", "port", "program", "who reaches it"),
		"leases":       func() string { return w.table([]string{"namespace", "lease", "what it is"}, leases) },
		"flags": func(name, unit string) (string, error) {
			items := w.machines[name].flags(unit)
			if len(items) == 0 {
				return "", fmt.Errorf("%s has no flags of %s", name, unit)
			}
			return w.table([]string{"flag", "value", "why"}, items), nil
		},
		"fields": func(name, file string) (string, error) {
			items, err := w.machines[name].fields(file)
			if err == nil && len(items) == 0 {
				err = fmt.Errorf("%s has no %s", name, file)
			}
			return w.table([]string{"field", "value", "why"}, items), err
		},
		"text": func(name, file string) (string, error) {
			text := w.machines[name].text(file)
			if text == "" {
				return "", fmt.Errorf("%s has no %s", name, file)
			}
			return "```text\n" + strings.TrimRight(text, "\n") + "\n```", nil
		},
	}
}

// table has a row for each item, which ends with the words on it.
func (w *where) table(headings []string, items []item) string {
	rows := []string{"| " + strings.Join(headings, " | ") + " |", strings.Repeat("|---", len(headings)) + "|"}
	for _, i := range items {
		said, found := words[i.key]
		if !found {
			w.missing = append(w.missing, i.key)
		}
		w.used[i.key] = true
		rows = append(rows, "| "+strings.Join(append(slices.Clone(i.cells), said), " | ")+" |")
	}
	return strings.Join(rows, "\n")
}

// check returns an error that names every item without words and all words without an item.
func (w *where) check() (err error) {
	for _, key := range slices.Compact(slices.Sorted(slices.Values(w.missing))) {
		err = errors.Join(err, fmt.Errorf("what-is-where: %q has no words in internal/pages/words.go", key))
	}
	for _, key := range slices.Sorted(maps.Keys(words)) {
		if !w.used[key] {
			err = errors.Join(err, fmt.Errorf("what-is-where: the words on %q have no item on the page", key))
		}
	}
	return err
}
