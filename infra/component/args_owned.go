package component

import (
	"maps"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/setting"
)

// What the user is told about a setting that belongs to the provider, or that another argument
// sets.
const (
	ownedWords     = "the provider sets it, and with another value the cluster would break: remove it."
	elsewhereWords = "it cannot be set here: use the argument %s instead."
)

// checkOwned reports a flag that only the provider may set, or that an argument sets.
func checkOwned(errs *invalid.Fields, program, flag string, extra Args) {
	const problem = "Flag of the provider"
	switch e := setting.Of(program)[setting.Flag][flag]; {
	case e.Class == setting.Elsewhere:
		errs.Say(ArgField(program, flag), problem, elsewhereWords, e.Use)
	case e.Class == setting.Owned:
		errs.Say(ArgField(program, flag), problem, ownedWords)
	case program == artifact.KubeAPIServer && flag == "authorization-mode" && extra["authorization-config"] == nil && !authorizesCluster(extra[flag]):
		errs.Say(ArgField(program, flag), problem, "the nodes and components of the cluster need the modes Node and RBAC: add your own to them, such as Node,RBAC,Webhook.")
	}
}

// checkOwnedFields is checkOwned for the fields of a configuration object.
func checkOwnedFields(errs *invalid.Fields, field, program string, config map[string]any) {
	const problem = "Field of the provider"
	known := setting.Of(program)[setting.Field]
	var walk func(below string, members map[string]any)
	walk = func(below string, members map[string]any) {
		for _, name := range slices.Sorted(maps.Keys(members)) {
			path := below + name
			switch e, listed := known[path]; {
			case e.Class == setting.Elsewhere:
				errs.Say(field, problem, "%s.%s: "+elsewhereWords, field, path, e.Use)
			case e.Class == setting.Owned:
				errs.Say(field, problem, "%s.%s: "+ownedWords, field, path)
			case !listed:
				if deeper, ok := members[name].(map[string]any); ok {
					walk(path+".", deeper)
				}
			}
		}
	}
	walk("", config)
}

// CheckFixed reports flags of a program that differ from the former ones although they can be chosen only for a new
// cluster.
func (a Args) CheckFixed(program string, former Args) (errs invalid.Fields) {
	for _, flag := range setting.Of(program).Names(setting.Flag, setting.Fixed) {
		if !slices.Equal(a[flag], former[flag]) {
			errs.Say(ArgField(program, flag), "Flag of a new cluster",
				"it says where %s keeps all objects. With another value the present objects would not be found: set it back to %q.", program, strings.Join(former[flag], ","))
		}
	}
	return errs
}

// authorizesCluster reports whether a list of authorization modes has those that the cluster needs.
func authorizesCluster(lists []string) bool {
	modes := strings.Split(strings.Join(lists, ","), ",")
	return slices.Contains(modes, "Node") && slices.Contains(modes, "RBAC")
}
