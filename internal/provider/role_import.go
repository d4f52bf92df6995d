package provider

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/keystore"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/freeform"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// A role resource is imported by a JSON object of the arguments that are only in the configuration:
// its hosts and its references. Everything else is read from the first machine that answers. The
// refresh that follows finds out whether the other machines are the same.

// importDescription describes the import id. needs are the arguments it must contain.
func importDescription(needs []string) string {
	return "\n\nThe import id is a JSON object of arguments with at least `" + strings.Join(needs, "`, `") + "`. " +
		"`pki` may be the cluster's name if its keys are in SSM under the default prefix. " +
		"Other arguments may be given as well; an argument that cannot be read from the cluster is imported only if it is given."
}

// importSettles describes what follows the import of a role.
const importSettles = " Versions, flags and settings are read from the machines. An import restarts nothing: the next apply adds to the state what the import could not read."

// importer says how a role is imported.
type importer[M any, S rollout.Role] struct {
	needs   []string // arguments that the id must contain
	hint    string   // further sentences of the description
	machine string   // what one of its machines is: "etcd member"
	// complete adds what the machine does not know, such as what other machines or the API know;
	// nil if there is nothing to add.
	complete func(ctx context.Context, d *providerData, m *M, found *S, diags *diag.Diagnostics)
	lookUp   idLookup // nil: the id must be a JSON object
	// hold returns whose the object in AWS is; nil for a role that owns none.
	hold func(ctx context.Context, d *providerData, m *M) (holding, error)
}

var _ resource.ResourceWithImportState = (*roleResource[any, rollout.Role])(nil)

// ImportState implements resource.ResourceWithImportState.
func (r *roleResource[M, S]) ImportState(ctx context.Context, req resource.ImportStateRequest, resp *resource.ImportStateResponse) {
	if err := r.data.readImportID(ctx, req.ID, r.role.importer.needs, r.role.importer.lookUp, &resp.State); err != nil {
		addError(&resp.Diagnostics, "Cannot import this "+r.role.title, err)
		return
	}
	var m M
	resp.Diagnostics.Append(resp.State.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	rec := roleRecord{Record: rollout.Record{Formed: true}}
	r.readMachines(ctx, &m, &rec, &resp.Diagnostics)
	if resp.Diagnostics.HasError() {
		return
	}
	if r.role.importer.hold != nil {
		h, err := r.role.importer.hold(ctx, r.data, &m)
		if err != nil {
			addError(&resp.Diagnostics, "Cannot import this "+r.role.title, err)
			return
		}
		r.keepHolding(ctx, resp.Private, h, &resp.Diagnostics)
	}
	r.role.common(&m).Drift = tf.NoDrift()
	r.role.common(&m).Claim = tf.OptionalString(rec.Record.Claim)
	tf.WritePrivate(ctx, resp.Private, recordKey, rec, &resp.Diagnostics)
	resp.Diagnostics.Append(resp.State.Set(ctx, &m)...)
}

// readMachines completes a model with what is found on its machines.
func (r *roleResource[M, S]) readMachines(ctx context.Context, m *M, rec *roleRecord, diags *diag.Diagnostics) {
	given := r.specWithoutDownloads(ctx, m, diags)
	if diags.HasError() {
		return
	}
	node, files, err := r.data.engine(ctx).Inspect(ctx, given)
	switch {
	case errors.Is(err, rollout.ErrNoMachines):
		diags.AddError("Cannot import this "+r.role.title, "The import id names no machines.")
		return
	case err != nil:
		addError(diags, "Cannot import this "+r.role.title, err)
		return
	}
	found, err := rollout.ReadRole(given, node, files)
	var nothing *component.NothingFoundError
	switch {
	case errors.As(err, &nothing):
		diags.AddError("Nothing to import", nothing.Reason)
	case err != nil:
		addError(diags, "Cannot read the configuration of this "+r.role.importer.machine, err)
	case r.role.importer.complete != nil:
		r.role.importer.complete(ctx, r.data, m, &found, diags)
	}
	if diags.HasError() {
		return
	}
	r.role.settings.fromSpec(ctx, &found, m)
	r.role.outputs(ctx, m, diags)
	spec := r.spec(ctx, m, diags)
	if diags.HasError() {
		return
	}
	if r.data.pinChecksums(ctx, rec, spec.Definition().Artifacts, diags); diags.HasError() {
		return
	}
	if rec.Record.Claim, err = r.data.engine(ctx).Claim(ctx, spec); err == nil {
		rec.Record.Claim, err = r.data.claimID(rec.Record.Claim)
	}
	if err != nil {
		addError(diags, "Cannot import this "+r.role.title, err)
	}
	r.setFiles(m, spec, diags)
	r.role.outputs(ctx, m, diags)
}

// idLookup returns the arguments for an id that is not a JSON object.
type idLookup func(ctx context.Context, d *providerData, id string) (map[string]any, error)

// readImportID writes the arguments of an import id into the state.
func (d *providerData) readImportID(ctx context.Context, id string, needs []string, lookUp idLookup, state *tfsdk.State) error {
	arguments, err := d.importArguments(ctx, id, lookUp)
	if err != nil {
		return err
	}
	typ, ok := state.Schema.Type().TerraformType(ctx).(tftypes.Object)
	if !ok {
		return errors.New("the schema is not an object")
	}
	for name := range arguments {
		if a, known := state.Schema.GetAttributes()[name]; !known || !a.IsRequired() && !a.IsOptional() {
			return fmt.Errorf("%q in the import id is not an argument", name)
		}
	}
	for _, name := range needs {
		if arguments[name] == nil {
			return fmt.Errorf("the import id lacks %s: it must contain %s", name, strings.Join(needs, ", "))
		}
	}
	cluster, byName := arguments["pki"].(string)
	if byName {
		delete(arguments, "pki")
	}
	attributes, err := freeformArguments(ctx, typ, arguments)
	if err != nil {
		return err
	}
	raw, err := json.Marshal(arguments)
	if err != nil {
		return err
	}
	if state.Raw, err = (tfprotov6.DynamicValue{JSON: raw}).Unmarshal(typ); err != nil {
		return fmt.Errorf("the import id has a value that the argument does not accept: %w", err)
	}
	if byName {
		ref, err := d.findKeys(ctx, cluster)
		if err != nil {
			return err
		}
		if attributes["pki"], err = pkiRefValue(ctx, ref).ToTerraformValue(ctx); err != nil {
			return err
		}
	}
	all := map[string]tftypes.Value{}
	if err := state.Raw.As(&all); err != nil {
		return err
	}
	maps.Copy(all, attributes)
	state.Raw = tftypes.NewValue(typ, all)
	return nil
}

// freeformArguments removes the arguments of dynamic type from arguments and returns their values.
// Terraform cannot determine their types from JSON.
func freeformArguments(ctx context.Context, typ tftypes.Object, arguments map[string]any) (map[string]tftypes.Value, error) {
	out := map[string]tftypes.Value{}
	for name, t := range typ.AttributeTypes {
		if arguments[name] == nil || !isFreeform(t) {
			continue
		}
		v, err := freeformValue(ctx, name, t, arguments[name])
		if err != nil {
			return nil, err
		}
		out[name] = v
		delete(arguments, name)
	}
	return out, nil
}

// isFreeform reports whether a type is dynamic, or an object of which all attributes are, such as
// extra_args.
func isFreeform(t tftypes.Type) bool {
	o, ok := t.(tftypes.Object)
	if !ok {
		return t.Is(tftypes.DynamicPseudoType)
	}
	for _, below := range o.AttributeTypes {
		if !isFreeform(below) {
			return false
		}
	}
	return len(o.AttributeTypes) > 0
}

// freeformValue converts one argument, or one attribute of it.
func freeformValue(ctx context.Context, name string, t tftypes.Type, v any) (tftypes.Value, error) {
	object, ok := v.(map[string]any)
	if !ok && v != nil {
		return tftypes.Value{}, fmt.Errorf("%s in the import id is not an object", name)
	}
	o, nested := t.(tftypes.Object)
	if !nested || v == nil {
		value, err := freeform.Value(object)
		if err != nil {
			return tftypes.Value{}, fmt.Errorf("%s in the import id: %w", name, err)
		}
		return value.ToTerraformValue(ctx)
	}
	members := map[string]tftypes.Value{}
	for below, bt := range o.AttributeTypes {
		var err error
		if members[below], err = freeformValue(ctx, name+"."+below, bt, object[below]); err != nil {
			return tftypes.Value{}, err
		}
	}
	for below := range object {
		if _, known := o.AttributeTypes[below]; !known {
			return tftypes.Value{}, fmt.Errorf("%s.%s in the import id is not an argument", name, below)
		}
	}
	return tftypes.NewValue(o, members), nil
}

// importArguments parses the JSON object of an import id, or looks up the arguments of another id.
func (d *providerData) importArguments(ctx context.Context, id string, lookUp idLookup) (map[string]any, error) {
	if lookUp != nil && !strings.HasPrefix(strings.TrimSpace(id), "{") {
		return lookUp(ctx, d, id)
	}
	var arguments map[string]any
	if err := json.Unmarshal([]byte(id), &arguments); err != nil {
		return nil, fmt.Errorf(`the import id must be a JSON object of arguments, such as jsonencode({ ..., pki = "<cluster>" }) makes in an import block: %w`, err)
	}
	return arguments, nil
}

// findKeys returns the reference to the keys of a cluster in SSM under the default prefix.
func (d *providerData) findKeys(ctx context.Context, cluster string) (pki.Ref, error) {
	r := pkiResource{base{d}}
	store, opts, err := r.open(ctx, pkiModel{
		Cluster: types.StringValue(cluster), KeyStore: types.StringValue(pki.StoreSSM),
		Prefix: types.StringValue(keystore.DefaultPrefix(cluster)),
	}, infraaws.Claim{})
	if err != nil {
		return pki.Ref{}, err
	}
	return pki.LoadRef(ctx, store, cluster, opts)
}
