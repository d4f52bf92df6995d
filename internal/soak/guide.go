package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
)

// The guide is rendered from its template, the parts and their records.
const (
	guideTemplate = "templates/guides/soak.md"
	guide         = "docs/guides/soak.md"
)

func (s soak) writeGuide() error {
	text, err := s.render()
	if err != nil {
		return err
	}
	return file.Replace(filepath.Join(s.root, guide), text, 0o644)
}

func (s soak) render() ([]byte, error) {
	raw, err := os.ReadFile(filepath.Join(s.root, guideTemplate))
	if err != nil {
		return nil, err
	}
	records := map[string]record{}
	for _, p := range s.parts {
		if records[p.name], err = readRecord(s.root, p.name); err != nil {
			return nil, err
		}
	}
	t, err := template.New(guideTemplate).Funcs(template.FuncMap{
		"parts": func() string { return partsTable(s.parts, records) },
		"figures": func(name string) (string, error) {
			if r, found := records[name]; found {
				return figuresTable(r), nil
			}
			return "", fmt.Errorf("there is no part %q", name)
		},
	}).Parse(string(raw))
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	err = t.Execute(&out, nil)
	return out.Bytes(), err
}

// partsTable has a row for each part, with its last line of output.
func partsTable(parts []part, records map[string]record) string {
	rows := []string{"| part | what it shows | figures | date |", "|---|---|---|---|"}
	for _, p := range parts {
		r := records[p.name]
		said, where := r.Figures, ""
		if p.table != "" {
			said, where = nil, "[below](#"+p.table+"), "
		}
		line := where + "`" + p.summary(said, r.Packages, time.Duration(r.Seconds)*time.Second, nil) + "`"
		if r.Note != "" {
			line += "; " + r.Note
		}
		if r.Date == "" {
			line = ""
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s | %s |", p.name, p.shows, line, r.Date))
	}
	return strings.Join(rows, "\n")
}

// figuresTable has a row for each figure, which is a name and what was measured.
func figuresTable(r record) string {
	rows := []string{"| what happens | figures |", "|---|---|"}
	for _, f := range r.Figures {
		name, text, _ := strings.Cut(f, ": ")
		rows = append(rows, "| "+name+" | "+text+" |")
	}
	return strings.Join(rows, "\n")
}
