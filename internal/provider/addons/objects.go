package addons

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/builtin"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube/field"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/addon"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// addon turns the model into the library's addon.
func (m *addonModel) addon(ctx context.Context, diags *diag.Diagnostics) addon.Addon {
	cp, _ := reference.OfControlPlane.Read(ctx, m.ControlPlane, diags)
	cluster := cp.Spec(ctx, diags)
	out := addon.Addon{
		API:  fleet.API{Endpoint: cp.Endpoint.ValueString(), PKI: cluster.PKI},
		Name: m.Name.ValueString(),
		Wait: m.Wait.ValueBool(), Force: m.ForceConflicts.ValueBool(), Ignored: m.ignored(),
	}
	if m.builtIn() {
		objects, err := m.release().Objects(cluster)
		if err != nil {
			diags.AddError("The addon cannot be built", err.Error())
		}
		out.Objects = objects
		return out
	}
	var errs invalid.Fields
	out.Objects, out.Hidden, errs = m.readManifests()
	for _, e := range errs {
		diags.AddAttributeError(tf.Path(e.Field), e.Problem, e.Err.Error())
	}
	return out
}

// release returns the built-in addon, as far as its arguments are known.
func (m *addonModel) release() builtin.Addon {
	return builtin.Addon{Name: m.Name.ValueString(), Version: m.Version.ValueString(), Image: m.Image.ValueString(), Environment: tf.StringMap(m.Environment)}
}

// readManifests reads the objects of both arguments, as far as the texts are known. hidden are
// those whose content must not be shown.
func (m *addonModel) readManifests() (all, hidden []*unstructured.Unstructured, errs invalid.Fields) {
	lists, errs := kube.ReadManifests(kube.Manifests{Field: "manifests", Texts: textsAt(m.Manifests)},
		kube.Manifests{Field: "sensitive_manifests", Texts: textsAt(m.SensitiveManifests), Secret: true})
	return slices.Concat(lists...), lists[1], errs
}

// textsAt returns the elements of a list, empty where they are unknown.
func textsAt(l types.List) []string {
	out := make([]string, len(l.Elements()))
	for i, e := range l.Elements() {
		if s, ok := e.(types.String); ok {
			out[i] = s.ValueString()
		}
	}
	return out
}

// builtIn reports whether the addon's objects are the provider's.
func (m *addonModel) builtIn() bool { return m.Manifests.IsNull() && m.SensitiveManifests.IsNull() }

// sameManifests reports whether two lists of texts contain the same objects in the same order.
func sameManifests(a, b []string) bool {
	before, wrong := kube.ReadManifests(kube.Manifests{Texts: a})
	after, alsoWrong := kube.ReadManifests(kube.Manifests{Texts: b})
	return len(wrong) == 0 && len(alsoWrong) == 0 && reflect.DeepEqual(before, after)
}

// complete sets the attributes that are computed from the objects.
func (m *addonModel) complete(ctx context.Context, a addon.Addon, diags *diag.Diagnostics) {
	m.ID = types.StringValue(reference.ClusterOf(ctx, reference.PKIIn(m.ControlPlane), diags).ValueString() + "/" + a.Name)
	digests := map[string]string{}
	for _, o := range a.Objects {
		digests[kube.RefOf(o).String()] = digest(o)
	}
	for _, o := range a.Hidden {
		digests[kube.RefOf(o).String()] = "sensitive"
	}
	m.Objects = tf.StringMapValue(digests)
}

// digest returns the digest of an object's wanted content.
func digest(o *unstructured.Unstructured) string {
	// The error is about values that no manifest can have: all are read from YAML or JSON.
	b, _ := o.MarshalJSON()
	return "sha256:" + desired.Sum(b)
}

// ignored returns the fields that are left to others, as far as they are known and right.
func (m *addonModel) ignored() field.Ignored {
	out := field.Ignored{}
	for key, v := range m.IgnoreFields.Elements() {
		list, _ := v.(types.List)
		for _, text := range textsAt(list) {
			if p, err := field.ParsePath(text); err == nil {
				out[key] = append(out[key], p)
			}
		}
	}
	return out
}

// checkIgnored checks the fields that are left to others. Unless all manifests are known, a field may
// be in one of the others.
func (m *addonModel) checkIgnored(objects []*unstructured.Unstructured, known bool) (errs invalid.Fields) {
	elements := m.IgnoreFields.Elements()
	for _, key := range slices.Sorted(maps.Keys(elements)) {
		list, _ := elements[key].(types.List)
		for i, e := range list.Elements() {
			text, ok := e.(types.String)
			if !ok || text.IsUnknown() {
				continue
			}
			p, err := field.Check(key, text.ValueString(), objects)
			name := fmt.Sprintf("ignore_fields[%q]", key)
			if errors.Is(err, field.ErrNoObject) {
				if known {
					errs.Say(name, "Unknown object", "%q %w. They are: %s.", key, err, strings.Join(names(objects), ", "))
				}
				break
			}
			if known || p == nil {
				errs.Add(fmt.Sprintf("%s[%d]", name, i), "Unusable field", err)
			}
		}
	}
	return errs
}

// names returns the names of objects, sorted.
func names(objects []*unstructured.Unstructured) []string {
	var out []string
	for _, o := range objects {
		out = append(out, field.NameOf(o))
	}
	slices.Sort(out)
	return out
}
