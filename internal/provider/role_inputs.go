package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// Inputs that several role resources share.

func argsAttribute(program string) schema.MapAttribute {
	return schema.MapAttribute{
		Optional: true, ElementType: types.StringType,
		MarkdownDescription: fmt.Sprintf("Further flags of %s, name without dashes to value; a flag that is set here wins over the provider's. "+
			"A change restarts %s, one machine at a time; a flag or a value it refuses is found before anything is stopped.", program, program),
		Validators: []validator.Map{mapvalidator.KeysAre(flagName())},
	}
}

var flagPattern = regexp.MustCompile(`^[a-z][a-zA-Z0-9-]*$`)

func flagName() validator.String {
	return stringCheck{"a flag's name without leading dashes", func(s string) error {
		if !flagPattern.MatchString(s) {
			return fmt.Errorf("%q is not the name of a flag; write it without leading dashes and without its value", s)
		}
		return nil
	}}
}

func earlyRenewalAttribute() schema.StringAttribute {
	return schema.StringAttribute{
		Optional: true,
		MarkdownDescription: fmt.Sprintf("How long before they expire certificates are renewed, in place, by the next apply. Default: `%s`.",
			short(pki.DefaultEarlyRenewal)),
		Validators: []validator.String{goDuration()},
	}
}

// objectJSON is an optional input that holds a JSON object.
func objectJSON(description string) schema.StringAttribute {
	return schema.StringAttribute{
		Optional: true, MarkdownDescription: description,
		Validators: []validator.String{stringCheck{"a JSON object", func(s string) error {
			_, err := parseObject(s)
			return err
		}}},
	}
}

// parseObject reads a JSON object; the empty string is none.
func parseObject(s string) (map[string]any, error) {
	if s == "" {
		return nil, nil
	}
	var m map[string]any
	if err := json.Unmarshal([]byte(s), &m); err != nil {
		return nil, fmt.Errorf("not a JSON object (use jsonencode): %w", err)
	}
	return m, nil
}

// objectFrom reads an objectJSON input. Its validator has reported what is malformed.
func objectFrom(v types.String) map[string]any {
	m, err := parseObject(v.ValueString())
	if err != nil {
		return nil
	}
	return m
}

// clusterOf returns the cluster's name in the input `pki`, unknown when that is.
func clusterOf(ctx context.Context, o types.Object, diags *diag.Diagnostics) types.String {
	m, ok := object[pkiRefModel](ctx, o, diags)
	if !ok {
		return types.StringUnknown()
	}
	return m.Cluster
}

// checkUpgrade reports, on the attribute version, a change of release that
// cannot be made in one step, as check has it.
func checkUpgrade(prior, plan types.String, check func(from, to version.Version) error, diags *diag.Diagnostics) {
	from, err := version.Parse(prior.ValueString())
	if err != nil || plan.IsUnknown() {
		return
	}
	to, err := version.Parse(plan.ValueString())
	if err != nil {
		return
	}
	if err := check(from, to); err != nil {
		diags.AddAttributeError(path.Root("version"), "Impossible upgrade", err.Error())
	}
}

// warnOfEndOfLife says, on the attribute version, that upstream mends the release
// not much longer. The summary is the same for every resource, so that Terraform
// prints it once.
func warnOfEndOfLife(release types.String, now time.Time, diags *diag.Diagnostics) {
	v, err := version.Parse(release.ValueString())
	if err != nil {
		return
	}
	if words := version.EndsSoon(v, now); words != "" {
		diags.AddAttributeWarning(path.Root("version"), "Kubernetes "+v.MinorString()+" ends", words)
	}
}

// checkConfig reports, on its attribute, a configuration object that the
// program it is for would not start with.
func checkConfig(attribute string, v types.String, program string, release types.String, check func(map[string]any) error, diags *diag.Diagnostics) {
	config := objectFrom(v)
	if len(config) == 0 {
		return
	}
	err := check(config)
	if v, unparsed := version.Parse(release.ValueString()); unparsed == nil {
		err = errors.Join(err, component.CheckFields(program, v, config))
	}
	if err != nil {
		diags.AddAttributeError(path.Root(attribute), "Unusable configuration", err.Error())
	}
}

// checkFlags reports, on an attribute of arguments, flags that the release of a
// program does not have any more.
func checkFlags(program string, release types.String, attribute string, args types.Map, diags *diag.Diagnostics) {
	v, err := version.Parse(release.ValueString())
	if err != nil {
		return
	}
	for name, element := range args.Elements() {
		value, ok := element.(types.String)
		if !ok || value.IsNull() {
			continue
		}
		// A value that is not known yet is empty here.
		if err := component.CheckFlags(program, v, component.Args{name: {value.ValueString()}}); err != nil {
			diags.AddAttributeError(path.Root(attribute).AtMapKey(name), "Not in this release", err.Error())
		}
	}
}

// checkDownloads reports, on the attribute version, downloads that there cannot
// be. A checksum that is not known yet is looked up when it is needed.
func checkDownloads(err error, diags *diag.Diagnostics) {
	if err != nil && !errors.Is(err, artifact.ErrUnknownChecksum) {
		diags.AddAttributeError(path.Root("version"), "Unusable version", err.Error())
	}
}

// targetsFrom maps hosts that are known to the library.
func targetsFrom(ctx context.Context, d *providerData, l types.List, diags *diag.Diagnostics) []fleet.Target {
	hosts, _ := hostsFrom(ctx, l, diags)
	var out []fleet.Target
	for _, h := range hosts {
		out = append(out, fleet.Target{Host: h.remote(d), Node: h.node()})
	}
	return out
}

func nodesOf(targets []fleet.Target) []component.Node {
	var out []component.Node
	for _, t := range targets {
		out = append(out, t.Node)
	}
	return out
}

// computedRef returns the attributes of a computed reference of strings, and lists and sets of strings.
func computedRef(t types.ObjectType) map[string]schema.Attribute { return refAttributes(t, true) }

// requiredRef returns the same attributes for the resource that takes the reference.
func requiredRef(t types.ObjectType) map[string]schema.Attribute { return refAttributes(t, false) }

func refAttributes(t types.ObjectType, computed bool) map[string]schema.Attribute {
	out := map[string]schema.Attribute{}
	for name, typ := range t.AttrTypes {
		out[name] = refAttribute(name, typ, computed)
	}
	return out
}

func refAttribute(name string, typ attr.Type, computed bool) schema.Attribute {
	if list, ok := typ.(types.ListType); ok {
		return schema.ListAttribute{Computed: computed, Required: !computed, ElementType: list.ElemType, MarkdownDescription: refDescriptions[name]}
	}
	if set, ok := typ.(types.SetType); ok { // may be null
		return schema.SetAttribute{Computed: computed, Optional: !computed, ElementType: set.ElemType, MarkdownDescription: refDescriptions[name]}
	}
	return schema.StringAttribute{Computed: computed, Required: !computed, MarkdownDescription: refDescriptions[name]}
}

// refDescriptions describe the attributes of references, on both sides.
var refDescriptions = map[string]string{
	"cluster":          "Name of the cluster.",
	"version":          "Release.",
	"endpoints":        "URLs of the members for clients.",
	"endpoint":         "URL of the API server for people.",
	"private_endpoint": "URL of the API server for the cluster's machines.",
	"public_host":      "Address of the load balancer for people.",
	"private_host":     "Address of the load balancer for the cluster's machines.",
	"pod_cidr":         "Network of the pods.",
	"service_cidr":     "Network of the services.",
	"node_cidrs":       "Subnets of the machines.",
	"dns_ip":           "Address of cluster DNS.",
	"domain":           "Domain of cluster DNS.",
}
