package roles

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/extrafile"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// The argument extra_files, which every role resource has: files of the user on its machines.

const extraFilesName = "extra_files"

// extraFileModel is one of `extra_files`.
type extraFileModel struct {
	Content   types.String `tfsdk:"content"`
	ContentWO types.String `tfsdk:"content_wo"` // write-only: null except in the configuration
	Version   types.Int64  `tfsdk:"content_wo_version"`
	Mode      types.String `tfsdk:"mode"`
	Owner     types.String `tfsdk:"owner"`
	Group     types.String `tfsdk:"group"`
	Restarts  types.Set    `tfsdk:"restarts"`
}

var extraFile = tf.NewReference[extraFileModel](map[string]schema.Attribute{
	"content": schema.StringAttribute{Optional: true, MarkdownDescription: fmt.Sprintf("Content, at most %d KiB. It is in the state. Either this or `content_wo`.", extrafile.MaxSize>>10)},
	"content_wo": schema.StringAttribute{
		Optional: true, WriteOnly: true, Sensitive: true,
		MarkdownDescription: "Content that is never in the state, in plans or in logs, such as a password. May be ephemeral. A change by hand on a machine is drift all the same. Needs Terraform 1.11.",
	},
	"content_wo_version": schema.Int64Attribute{Optional: true, MarkdownDescription: "Required with `content_wo`: any number. A change writes the file again."},
	"mode": schema.StringAttribute{
		Optional: true, MarkdownDescription: "Permission bits, such as `0640`. Default: `0644`, with `content_wo` `0600`.",
		Validators: []validator.String{tf.Check("permission bits in octal, such as 0640", func(s string) error { _, err := parseMode(s); return err })},
	},
	"owner": schema.StringAttribute{Optional: true, MarkdownDescription: "User, by name or number. It must exist. Default: `root`.", Validators: []validator.String{stringvalidator.LengthAtLeast(1)}},
	"group": schema.StringAttribute{Optional: true, MarkdownDescription: "Group, by name or number. It must exist. Default: `root`.", Validators: []validator.String{stringvalidator.LengthAtLeast(1)}},
	"restarts": schema.SetAttribute{
		Optional: true, ElementType: types.StringType,
		MarkdownDescription: "systemd units that restart when the file changes or goes, such as `chrony.service`. They must exist. A unit whose file is placed here too is enabled and kept running. Default: none; a drop-in restarts its unit of this resource.",
	},
})

func extraFilesAttribute() schema.MapNestedAttribute {
	return schema.MapNestedAttribute{
		Optional: true, NestedObject: extraFile.Inputs("").NestedObject,
		MarkdownDescription: "Files on every machine of this resource, by absolute path. Drift-checked like the provider's own. A file that is taken out is removed. A change goes through the machines in the order of a roll if it restarts a unit. Paths of the provider are refused, drop-ins for its units are not. Default: none.",
		Validators:          []validator.Map{mapvalidator.SizeAtLeast(1)},
	}
}

func parseMode(s string) (uint32, error) {
	mode, err := strconv.ParseUint(s, 8, 12)
	if err != nil || len(s) < 3 || len(s) > 4 {
		return 0, fmt.Errorf("%q is not three or four octal digits", s)
	}
	return uint32(mode), nil
}

// extraFiles returns the files of a model, as far as they are known, with write-only contents by path.
func extraFiles(ctx context.Context, m *roleModel) []desired.ExtraFile {
	models := extraFileModels(ctx, m.ExtraFiles)
	var out []desired.ExtraFile
	for _, p := range slices.Sorted(maps.Keys(models)) {
		f := models[p]
		mode, _ := parseMode(f.Mode.ValueString())
		one := desired.ExtraFile{Path: p, Mode: mode, Owner: f.Owner.ValueString(), Group: f.Group.ValueString(), Version: f.Version.ValueInt64(), Secret: !f.Version.IsNull()}
		if one.Secret {
			one.Content = m.contents[p]
		} else if !f.Content.IsNull() {
			one.Content = []byte(f.Content.ValueString())
		}
		if tf.AllKnown(f.Restarts) {
			one.Restarts = tf.Strings(f.Restarts.Elements())
			slices.Sort(one.Restarts)
		}
		out = append(out, one)
	}
	return out
}

func extraFileModels(ctx context.Context, v types.Map) map[string]extraFileModel {
	out := map[string]extraFileModel{}
	var diags diag.Diagnostics // always empty: the model fits the attribute
	for p, one := range v.Elements() {
		if o, ok := one.(types.Object); ok && !o.IsUnknown() {
			if f, known := extraFile.Read(ctx, o, &diags); known {
				out[p] = f
			}
		}
	}
	return out
}

// readContents takes the write-only contents from the configuration.
func (m *roleModel) readContents(ctx context.Context, config tfsdk.Config, diags *diag.Diagnostics) {
	var files types.Map
	diags.Append(config.GetAttribute(ctx, path.Root(extraFilesName), &files)...)
	m.contents = map[string][]byte{}
	for p, f := range extraFileModels(ctx, files) {
		if !f.ContentWO.IsNull() && !f.ContentWO.IsUnknown() {
			m.contents[p] = []byte(f.ContentWO.ValueString())
		}
	}
}

// checkExtraFiles checks the files of a planned role.
func checkExtraFiles(ctx context.Context, role string, config tfsdk.Config, m *roleModel, diags *diag.Diagnostics) invalid.Fields {
	var files types.Map
	diags.Append(config.GetAttribute(ctx, path.Root(extraFilesName), &files)...)
	errs := extrafile.Check(role, extraFiles(ctx, m))
	models := extraFileModels(ctx, files)
	for _, p := range slices.Sorted(maps.Keys(models)) {
		f, at := models[p], fmt.Sprintf("%s[%q]", extraFilesName, p)
		switch {
		case f.Content.IsNull() == f.ContentWO.IsNull():
			errs.Say(at, "One content", "A file has either content or content_wo.")
		case f.ContentWO.IsNull() != f.Version.IsNull():
			errs.Say(at, "Version of a write-only content", "content_wo and content_wo_version belong together: Terraform does not see a change of content_wo, so the version says that there is one.")
		}
	}
	return errs
}

// checkPlaces refuses a file that another resource of this plan places on the same machine.
func (r *roleResource[M, S]) checkPlaces(plan *M, s S, diags *diag.Diagnostics) {
	m := r.kind.common(plan)
	var machines []string
	for _, t := range s.Definition().Targets {
		machines = append(machines, t.Node.Name+" ("+t.Node.PrivateIP.String()+")")
	}
	places := r.Session.Successions.Places("k8s_"+r.kind.name+" "+m.ID.ValueString(), machines, slices.Sorted(maps.Keys(m.ExtraFiles.Elements())))
	for _, p := range places {
		diags.AddAttributeError(path.Root(extraFilesName).AtMapKey(p.Path), "Two resources place one file",
			fmt.Sprintf("%s also places %s on machine %s. Each would remove or overwrite what the other has placed: leave it to one of them.", p.Owner, p.Path, p.Machine))
	}
}

// extraFilesSetting is the setting `extra_files`. An import does not find the files: it does not know which are the
// user's.
func extraFilesSetting[M, S any](common func(*M) *roleModel, join func(*S) *[]desired.ExtraFile) setting[M, S] {
	return setting[M, S]{
		attribute: extraFilesAttribute(),
		toSpec:    func(ctx context.Context, m *M, s *S) { *join(s) = extraFiles(ctx, common(m)) },
		fromSpec: func(ctx context.Context, s *S, m *M) {
			if argument := &common(m).ExtraFiles; argument.IsNull() {
				*argument = extraFilesValue(ctx, *join(s))
			}
		},
	}
}

// extraFilesValue is the inverse of extraFiles, without what is write-only.
func extraFilesValue(ctx context.Context, files []desired.ExtraFile) types.Map {
	out := map[string]attr.Value{}
	for _, f := range files {
		m := extraFileModel{Owner: tf.OptionalString(f.Owner), Group: tf.OptionalString(f.Group), Restarts: types.SetNull(types.StringType)}
		if f.Mode != 0 {
			m.Mode = types.StringValue(fmt.Sprintf("%04o", f.Mode))
		}
		if f.Secret {
			m.Version = types.Int64Value(f.Version)
		} else {
			m.Content = types.StringValue(string(f.Content))
		}
		if len(f.Restarts) > 0 {
			m.Restarts = types.SetValueMust(types.StringType, tf.StringsValue(f.Restarts).Elements())
		}
		out[f.Path] = extraFile.Value(ctx, m)
	}
	if len(out) == 0 {
		return types.MapNull(extraFile.Type())
	}
	return types.MapValueMust(extraFile.Type(), out)
}
