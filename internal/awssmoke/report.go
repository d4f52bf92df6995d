package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"
	"time"
)

// report is what a trial found. It is written redacted.
type report struct {
	Name      string
	Began     time.Time
	Against   string // AWS, or why it was not
	Rights    string // of the provider
	Region    string
	Cost      string
	Quotas    []string // that the cluster needs
	Versions  []version
	Steps     []stepResult
	Codes     []codeCount
	Denials   []denial // calls of a role that were refused for want of a permission
	Notes     []string
	Warnings  []string // of the apply
	Leftovers []string
	Differed  []string // from a trial of the local EC2; see differences
}

type version struct{ Name, Version string }

// stepResult is the result of one step.
type stepResult struct {
	Name, Result, Error string
	Seconds             float64
}

// The results of a step.
const (
	passedStep = "passed"
	failed     = "failed"
	notRun     = "not run"
)

func (r *report) version(name, v string) { r.Versions = append(r.Versions, version{name, v}) }

// NothingLeft says what it means that no leftovers are listed.
func (r report) NothingLeft() string {
	for _, s := range r.Steps {
		if s.Name == stepLeftovers && s.Result == passedStep {
			return "Nothing."
		}
		if s.Name == stepLeftovers {
			return "Not known: the search failed."
		}
	}
	return "Nothing was made."
}

// failed reports whether a step failed.
func (r *report) failed() bool {
	return slices.ContainsFunc(r.Steps, func(s stepResult) bool { return s.Result == failed })
}

// differences returns what the trial met that a trial of the local EC2 does not meet.
func (r *report) differences() []string {
	var out []string
	for _, s := range r.Steps {
		switch s.Result {
		case failed:
			out = append(out, fmt.Sprintf("%s failed: %s", s.Name, s.Error))
		case notRun:
			out = append(out, s.Name+" was not run")
		}
	}
	for _, c := range r.Codes {
		if !c.Known {
			out = append(out, fmt.Sprintf("%s %s was answered with %s, which the local EC2 does not know", c.Service, c.Action, c.Code))
		}
	}
	for _, d := range r.Denials {
		if r.failed() { // otherwise it was repeated, or not needed
			out = append(out, "a permission was refused: "+d.Action)
		}
	}
	out = append(out, r.Notes...)
	for _, w := range r.Warnings {
		out = append(out, "the apply warned: "+w)
	}
	return out
}

//go:embed report.md.tmpl
var page string

var pageTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"indent": func(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), "\n", "\n  ") },
}).Parse(page))

// writeReport writes the report as a page and as JSON.
func (t *trial) writeReport(ctx context.Context) error {
	refused, err := t.refusals()
	if err != nil {
		return fmt.Errorf("reading the provider's log: %w", err)
	}
	t.report.Codes = count(append(t.account.refused(), refused...))
	if t.role != nil && t.role.documents != nil {
		if t.report.Denials, err = t.denials(ctx, refused); err != nil {
			t.report.Notes = append(t.report.Notes, "what the policies lack is not known: "+err.Error())
		}
	}
	t.report.Differed = t.report.differences()
	var text strings.Builder
	if err := pageTemplate.Execute(&text, t.report); err != nil {
		return err
	}
	raw, err := t.report.json(t.redact)
	if err != nil {
		return err
	}
	file := filepath.Join(t.dir, "report.md")
	if err := errors.Join(os.WriteFile(file, []byte(t.redact.text(text.String())), 0o600), os.WriteFile(filepath.Join(t.dir, "report.json"), raw, 0o600)); err != nil {
		return err
	}
	_, _ = fmt.Fprintf(t.out, "\nThe report is %s. It has no account id, address, ARN or key; read it before you share it.\n", file)
	return nil
}

// json returns the report with every text redacted.
func (r report) json(redact *redactor) ([]byte, error) {
	raw, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	var v any
	if err := json.Unmarshal(raw, &v); err != nil {
		return nil, err
	}
	return json.MarshalIndent(each(v, redact.text), "", "  ")
}

// each returns a JSON value with every text in it replaced by f.
func each(v any, f func(string) string) any {
	switch v := v.(type) {
	case string:
		return f(v)
	case []any:
		for i := range v {
			v[i] = each(v[i], f)
		}
	case map[string]any:
		for k := range v {
			v[k] = each(v[k], f)
		}
	}
	return v
}
