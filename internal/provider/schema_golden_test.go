package provider_test

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

var update = flag.Bool("update", false, "rewrite golden files")

// schemaFile contains the schemas with which states of this release are written.
const schemaFile = "testdata/schemas.json"

// stateForm is the part of a resource's schema that its state depends on.
type stateForm struct {
	Version    int64             `json:"version"`
	Attributes map[string]string `json:"attributes"` // path to type
}

// TestSchemaForms fails if the schema of a resource's state differs from the golden file. Added
// attributes only need an updated golden file (-update). After the first release, an attribute that
// is renamed, removed or given another type needs a new schema version and an upgrader, as
// CONTRIBUTING.md describes; -update refuses it.
func TestSchemaForms(t *testing.T) {
	c := providertest.NewCore(t, provider.New("test"), nil)
	now := map[string]stateForm{}
	for name, s := range c.Schemas.ResourceSchemas {
		now[name] = stateForm{s.Version, formOf(s)}
	}
	golden := map[string]stateForm{}
	raw, err := os.ReadFile(schemaFile)
	if err == nil {
		err = json.Unmarshal(raw, &golden)
	}
	if err != nil && !*update {
		t.Fatal(err)
	}
	for _, problem := range brokenForms(golden, now) {
		t.Error(problem)
	}
	if t.Failed() || reflect.DeepEqual(golden, now) {
		return
	}
	if !*update {
		t.Fatalf("schemas have attributes, or versions, that %s does not have: go test ./internal/provider -run TestSchemaForms -update, and read its diff", schemaFile)
	}
	raw, err = json.MarshalIndent(now, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(schemaFile, append(raw, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

// brokenForms returns which states of the same version could no longer be read.
func brokenForms(before, now map[string]stateForm) []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(before)) {
		was, is := before[name], now[name]
		if is.Version < was.Version {
			out = append(out, name+": the version must never go back")
		}
		if is.Version != was.Version {
			continue
		}
		for _, at := range slices.Sorted(maps.Keys(was.Attributes)) {
			switch typ, kept := is.Attributes[at]; {
			case !kept:
				out = append(out, name+"."+at+" is gone: count the version up and add an upgrader (CONTRIBUTING.md)")
			case typ != was.Attributes[at]:
				out = append(out, name+"."+at+" was "+was.Attributes[at]+" and is "+typ+": count the version up and add an upgrader (CONTRIBUTING.md)")
			}
		}
	}
	return out
}

// formOf returns the attributes of a schema, including nested ones and blocks.
func formOf(s *tfprotov6.Schema) map[string]string {
	out := map[string]string{}
	for _, a := range s.Block.Attributes {
		addForm(out, a.Name, a)
	}
	for _, b := range s.Block.BlockTypes {
		for _, a := range b.Block.Attributes {
			addForm(out, b.TypeName+"."+a.Name, a)
		}
	}
	return out
}

func addForm(out map[string]string, at string, a *tfprotov6.SchemaAttribute) {
	if a.NestedType == nil {
		out[at] = strings.ReplaceAll(a.Type.String(), "tftypes.", "")
		return
	}
	out[at] = a.NestedType.Nesting.String()
	for _, below := range a.NestedType.Attributes {
		addForm(out, at+"."+below.Name, below)
	}
}

// TestBrokenForms checks that the test above detects incompatible changes.
func TestBrokenForms(t *testing.T) {
	form := func(version int64, attributes ...string) map[string]stateForm {
		out := map[string]string{}
		for _, a := range attributes {
			name, typ, _ := strings.Cut(a, ":")
			out[name] = typ
		}
		return map[string]stateForm{"k8s_x": {version, out}}
	}
	for name, test := range map[string]struct {
		before, now map[string]stateForm
		problems    int
	}{
		"the same":             {form(1, "a:String"), form(1, "a:String"), 0},
		"one more":             {form(1, "a:String"), form(1, "a:String", "b:Bool"), 0},
		"another type":         {form(1, "a:String"), form(1, "a:Number"), 1},
		"one less":             {form(1, "a:String", "b:Bool"), form(1, "a:String"), 1},
		"all anew, version up": {form(1, "a:String"), form(2, "b:Bool"), 0},
		"version down":         {form(2, "a:String"), form(1, "a:String"), 1},
		"a resource less":      {form(0, "a:String"), nil, 1},
	} {
		if got := brokenForms(test.before, test.now); len(got) != test.problems {
			t.Errorf("%s: %q", name, got)
		}
	}
}
