package reference

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/keystore"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/freeform"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// IDLookup returns the arguments for an id that is not a JSON object.
type IDLookup func(ctx context.Context, d *session.Session, id string) (map[string]any, error)

// ReadImportID writes the arguments of an import id into the state.
func ReadImportID(ctx context.Context, d *session.Session, id string, needs []string, lookUp IDLookup, state *tfsdk.State) error {
	arguments, err := importArguments(ctx, d, id, lookUp)
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
	if err := findKeys(ctx, d, arguments); err != nil {
		return err
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

// importArguments parses the JSON object of an import id, or looks up the arguments of any other id.
func importArguments(ctx context.Context, d *session.Session, id string, lookUp IDLookup) (map[string]any, error) {
	if !strings.HasPrefix(strings.TrimSpace(id), "{") {
		return lookUp(ctx, d, id)
	}
	var arguments map[string]any
	if err := json.Unmarshal([]byte(id), &arguments); err != nil {
		return nil, fmt.Errorf("the import id begins as a JSON object of arguments, and is none: %w", err)
	}
	return arguments, nil
}

// findKeys replaces the name of a cluster as `pki` by the reference to its keys in SSM under the default prefix.
func findKeys(ctx context.Context, d *session.Session, arguments map[string]any) error {
	for name, v := range arguments {
		cluster, byName := v.(string)
		if below, ok := v.(map[string]any); ok && (name == "etcd" || name == "control_plane") {
			if err := findKeys(ctx, d, below); err != nil {
				return err
			}
		}
		if name != "pki" || !byName {
			continue
		}
		ref, err := loadKeys(ctx, d, cluster)
		if err != nil {
			return err
		}
		arguments[name] = pkiArgument(ref)
	}
	return nil
}

// loadKeys returns the reference to the keys of a cluster in SSM under the default prefix.
func loadKeys(ctx context.Context, d *session.Session, cluster string) (pki.Ref, error) {
	client, err := d.AWS(ctx)
	if err != nil {
		return pki.Ref{}, err
	}
	prefix := keystore.DefaultPrefix(cluster)
	store := keystore.New(client, keystore.Config{Cluster: cluster, Prefix: prefix})
	return pki.LoadRef(ctx, store, cluster, pki.Options{Store: pki.StoreSSM, CAValidity: pki.DefaultCAValidity, Prefix: prefix, Region: store.Region()})
}
