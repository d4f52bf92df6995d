package addon

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
)

// hide replaces the values in findings about hidden objects.
func (a Addon) hide(drift []finding.Finding) []finding.Finding {
	hidden := map[string]bool{}
	for _, ref := range kube.RefsOf(a.Hidden) {
		hidden[ref.String()] = true
	}
	out := slices.Clone(drift)
	for i, f := range out {
		if !hidden[f.Subject] {
			continue
		}
		if f.Found != "" {
			out[i].Found = finding.Hidden
		}
		if f.Wanted != "" {
			out[i].Wanted = finding.Hidden
		}
		out[i].Cause = ""
	}
	return out
}

// hiddenError is an error without the values of hidden objects, which an API server may quote.
type hiddenError struct {
	err  error
	text string
}

func (e *hiddenError) Error() string { return e.text }

// Unwrap returns the error with the values.
func (e *hiddenError) Unwrap() error { return e.err }

// shortestHidden is the length from which a value is taken out of an error: a shorter one is hardly
// a secret, and is part of many words.
const shortestHidden = 4

// hideIn takes the values of hidden objects out of an error.
func (a Addon) hideIn(err error) error {
	if err == nil || len(a.Hidden) == 0 {
		return err
	}
	return &hiddenError{err, a.hideText(err.Error())}
}

// hideText takes the values of hidden objects out of a text.
func (a Addon) hideText(text string) string {
	var values []string
	for _, o := range a.Hidden {
		for field, v := range o.Object {
			if field != "apiVersion" && field != "kind" && field != "metadata" {
				values = append(values, textsIn(v)...)
			}
		}
		for _, v := range o.GetAnnotations() {
			values = append(values, textsIn(v)...)
		}
	}
	// Longer values first: one may be part of another.
	slices.SortFunc(values, func(x, y string) int { return cmp.Or(len(y)-len(x), strings.Compare(x, y)) })
	for _, v := range values {
		text = strings.ReplaceAll(text, v, finding.Hidden)
	}
	return text
}

// textsIn returns the texts and numbers in a value that are long enough to hide, in every form in which
// an API server quotes them.
func textsIn(v any) (out []string) {
	switch v := v.(type) {
	case string:
		if len(v) >= shortestHidden {
			out = []string{v, inner(strconv.Quote(v)), inner(jsonOf(v))}
		}
	case int64, float64:
		out = slices.DeleteFunc([]string{fmt.Sprint(v), jsonOf(v)}, func(s string) bool { return len(s) < shortestHidden })
	case []any:
		for _, e := range v {
			out = append(out, textsIn(e)...)
		}
	case map[string]any:
		for _, e := range v {
			out = append(out, textsIn(e)...)
		}
	}
	return out
}

// inner returns what is between quotation marks.
func inner(quoted string) string { return quoted[1 : len(quoted)-1] }

// jsonOf returns a text or a number as JSON.
func jsonOf(v any) string {
	out, _ := json.Marshal(v) // never fails for what came from a manifest
	return string(out)
}
