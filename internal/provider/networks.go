package provider

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/cidrtypes"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// namedPrefix is a network and the attribute that it comes from.
type namedPrefix struct {
	path   path.Path
	name   string
	prefix netip.Prefix
}

// prefixNamed names the network in an attribute at the root of a resource.
func prefixNamed(name string, v cidrtypes.IPv4Prefix) namedPrefix {
	return namedPrefix{path.Root(name), name, tf.Prefix(v)}
}

// checkDisjoint reports, on the first attribute, networks that overlap.
// Zero prefixes are passed over.
func checkDisjoint(a, b namedPrefix, diags *diag.Diagnostics) {
	if a.prefix.IsValid() && b.prefix.IsValid() && a.prefix.Overlaps(b.prefix) {
		diags.AddAttributeError(a.path, "Overlapping networks",
			fmt.Sprintf("%s %s overlaps %s %s. Nodes, pods and services need networks of their own.", a.name, a.prefix, b.name, b.prefix))
	}
}

// joined lists networks for a message.
func joined(prefixes []netip.Prefix) string {
	var out []string
	for _, p := range prefixes {
		out = append(out, p.String())
	}
	return strings.Join(out, ", ")
}
