package roles

import (
	"context"
	"slices"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// linesType is the type of what the attribute files has of one path.
var linesType = types.ListType{ElemType: types.StringType}

// noLines is what an object has of a path of which nothing is known.
var noLines = types.ListValueMust(types.StringType, nil)

// setFiles sets the attribute files. unknown stands for what depends on a checksum that is not known.
func (r *roleResource[M, S]) setFiles(m *M, spec S, unknown types.List, diags *diag.Diagnostics) {
	files, err := rollout.Files(spec)
	if err != nil {
		diags.AddError("This "+r.kind.title+" cannot be built", err.Error())
		return
	}
	r.kind.common(m).Files = filesValue(files, unknown)
}

func filesValue(files map[string][]string, unknown types.List) types.Map {
	out := make(map[string]attr.Value, len(files))
	for path, lines := range files {
		if lines == nil {
			out[path] = unknown
			continue
		}
		values := make([]attr.Value, len(lines))
		for i, line := range lines {
			values[i] = types.StringValue(line)
		}
		out[path] = types.ListValueMust(types.StringType, values)
	}
	return types.MapValueMust(linesType, out)
}

// guesses are values of what is not known of a machine that does not exist yet. A file that is the same with each of
// them does not depend on it.
var guesses = []map[string]any{
	{"address": "192.0.2.1", "public_ip": "192.0.2.1", "host_key": "ssh-ed25519 A", "instance_id": "i-1", "availability_zone": "zone-1"},
	{"address": "192.0.2.2", "public_ip": nil, "host_key": "ssh-ed25519 B", "instance_id": "i-2", "availability_zone": nil},
}

// plannedFiles returns the files of a role of whose machines something is not known, because they do not exist yet: those
// that do not depend on it are known. Where anything else is not known, no file is.
func (r *roleResource[M, S]) plannedFiles(ctx context.Context, req resource.ModifyPlanRequest, rec roleRecord) types.Map {
	unknown := types.MapUnknown(linesType)
	var all []map[string][]string
	for _, guess := range guesses {
		config, err := withHosts(req.Config.Raw, guess)
		if err != nil || !config.IsFullyKnown() {
			return unknown
		}
		plan, err := withHosts(req.Plan.Raw, guess)
		if err != nil {
			return unknown
		}
		var m M
		var s S
		diags := tfsdk.Plan{Raw: plan, Schema: req.Plan.Schema}.Get(ctx, &m)
		if diags.HasError() {
			return unknown
		}
		r.kind.settings.toSpec(ctx, &m, &s)
		r.kind.outputs(ctx, &m, &diags)
		r.complete(ctx, &m, &s, &diags)
		if diags.HasError() {
			return unknown
		}
		rec.addChecksums(s.Definition().Artifacts)
		files, err := rollout.Files(s)
		if err != nil {
			return unknown
		}
		all = append(all, files)
	}
	known := all[0]
	for _, other := range all[1:] {
		if len(other) != len(known) {
			return unknown
		}
		for path, lines := range known {
			found, ok := other[path]
			if !ok {
				return unknown
			}
			if !slices.Equal(lines, found) {
				known[path] = nil
			}
		}
	}
	return filesValue(known, types.ListUnknown(types.StringType))
}

// withHosts returns the value of a role with a guess in place of what is not known of its machines, and without
// write-only values that are not known.
func withHosts(v tftypes.Value, guess map[string]any) (tftypes.Value, error) {
	return tftypes.Transform(v, func(path *tftypes.AttributePath, v tftypes.Value) (tftypes.Value, error) {
		steps := path.Steps()
		if v.IsKnown() || len(steps) < 2 {
			return v, nil
		}
		top, _ := steps[0].(tftypes.AttributeName)
		name, _ := steps[len(steps)-1].(tftypes.AttributeName)
		if strings.HasSuffix(string(name), "_wo") { // write-only: no file that is listed depends on it
			return tftypes.NewValue(v.Type(), nil), nil
		}
		value, guessed := guess[string(name)]
		if !guessed || !slices.Contains([]string{"hosts", "host", "controllers", "standbys"}, string(top)) {
			return v, nil
		}
		return tftypes.NewValue(v.Type(), value), nil
	})
}
