package provider_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// longestDescription is how many characters a description in a schema may have. Editors show
// descriptions beside the code. More belongs on the page of the resource, or in a guide.
const longestDescription = 300

// TestDescriptions checks that everything the provider serves has a description, down to nested
// attributes and the parameters of functions, and that none is too long.
func TestDescriptions(t *testing.T) {
	found := descriptions(providertest.NewCore(t, provider.New("test"), nil).Schemas)
	if len(found) < 500 {
		t.Errorf("only %d descriptions were found", len(found))
	}
	for _, at := range slices.Sorted(maps.Keys(found)) {
		switch n := utf8.RuneCountInString(found[at]); {
		case n == 0 && !strings.HasSuffix(at, ".timeouts"):
			t.Errorf("%s has no description", at)
		case n > longestDescription:
			t.Errorf("the description of %s has %d characters, %d more than allowed: %s", at, n, n-longestDescription, found[at])
		}
	}
}

// descriptions returns the descriptions of all that the provider serves, by where they are.
func descriptions(schemas *tfprotov6.GetProviderSchemaResponse) map[string]string {
	out := map[string]string{}
	addBlock(out, "provider", schemas.Provider.Block)
	for kind, group := range map[string]map[string]*tfprotov6.Schema{
		"resource ":           schemas.ResourceSchemas,
		"data source ":        schemas.DataSourceSchemas,
		"ephemeral resource ": schemas.EphemeralResourceSchemas,
		"list resource ":      schemas.ListResourceSchemas,
	} {
		for name, s := range group {
			addBlock(out, kind+name, s.Block)
		}
	}
	for name, a := range schemas.ActionSchemas {
		addBlock(out, "action "+name, a.Schema.Block)
	}
	for name, f := range schemas.Functions {
		at := "function " + name
		out[at], out[at+" (summary)"] = f.Description, f.Summary
		parameters := f.Parameters
		if f.VariadicParameter != nil {
			parameters = append(slices.Clone(parameters), f.VariadicParameter)
		}
		for _, p := range parameters {
			out[at+"."+p.Name] = p.Description
		}
	}
	return out
}

func addBlock(out map[string]string, at string, b *tfprotov6.SchemaBlock) {
	out[at] = b.Description
	addAttributes(out, at, b.Attributes)
	for _, below := range b.BlockTypes {
		addBlock(out, at+"."+below.TypeName, below.Block)
	}
}

func addAttributes(out map[string]string, at string, attributes []*tfprotov6.SchemaAttribute) {
	for _, a := range attributes {
		out[at+"."+a.Name] = a.Description
		if a.NestedType != nil {
			addAttributes(out, at+"."+a.Name, a.NestedType.Attributes)
		}
	}
}
