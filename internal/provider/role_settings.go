package provider

import (
	"context"
	"maps"
	"net/netip"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/cidrtypes"
	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/freeform"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// settings are the arguments of a role that are fields of its specification, by
// name. M is the role's Terraform model, S its type in package rollout.
type settings[M, S any] map[string]setting[M, S]

// setting is one of them: its schema, and its way to the specification and back.
// Null and unknown are the zero value there.
type setting[M, S any] struct {
	attribute schema.Attribute
	toSpec    func(ctx context.Context, m *M, s *S)
	// fromSpec sets the argument if it is null: what an import is given wins over
	// what it finds.
	fromSpec func(ctx context.Context, s *S, m *M)
}

func (all settings[M, S]) toSpec(ctx context.Context, m *M, s *S) {
	for _, one := range all {
		one.toSpec(ctx, m, s)
	}
}

func (all settings[M, S]) fromSpec(ctx context.Context, s *S, m *M) {
	for _, one := range all {
		one.fromSpec(ctx, s, m)
	}
}

// addTo adds the settings to the other attributes of a role.
func (all settings[M, S]) addTo(attributes map[string]schema.Attribute) map[string]schema.Attribute {
	out := maps.Clone(attributes)
	for name, one := range all {
		out[name] = one.attribute
	}
	return out
}

// form is how a value is written in Terraform and in a specification.
type form[V attr.Value, F any] struct {
	toSpec   func(context.Context, V) F
	fromSpec func(context.Context, F) V // the zero value becomes null
}

// bind makes a setting whose values have a form. join points to the argument and to
// the field.
func bind[M, S any, V attr.Value, F any](a schema.Attribute, f form[V, F], join func(*M, *S) (*V, *F)) setting[M, S] {
	return setting[M, S]{
		attribute: a,
		toSpec: func(ctx context.Context, m *M, s *S) {
			argument, field := join(m, s)
			*field = f.toSpec(ctx, *argument)
		},
		fromSpec: func(ctx context.Context, s *S, m *M) {
			if argument, field := join(m, s); (*argument).IsNull() {
				*argument = f.fromSpec(ctx, *field)
			}
		},
	}
}

// plainForm is a form that needs no context.
func plainForm[V attr.Value, F any](toSpec func(V) F, fromSpec func(F) V) form[V, F] {
	return form[V, F]{func(_ context.Context, v V) F { return toSpec(v) }, func(_ context.Context, f F) V { return fromSpec(f) }}
}

var (
	text     = plainForm(types.String.ValueString, tf.OptionalString)
	document = plainForm(func(v types.String) []byte {
		if v.ValueString() == "" {
			return nil
		}
		return []byte(v.ValueString())
	}, func(b []byte) types.String { return tf.OptionalString(string(b)) })
	prefix  = plainForm(tf.Prefix, tf.OptionalPrefix)
	address = plainForm(tf.Addr, tf.OptionalAddr)
	number  = plainForm(func(v types.Int64) int { return int(v.ValueInt64()) }, func(n int) types.Int64 {
		if n == 0 {
			return types.Int64Null()
		}
		return types.Int64Value(int64(n))
	})
	duration = plainForm(func(v timetypes.GoDuration) time.Duration { return tf.Duration(v, 0) }, func(d time.Duration) timetypes.GoDuration {
		if d == 0 {
			return timetypes.NewGoDurationNull()
		}
		return timetypes.NewGoDurationValue(d)
	})
	prefixes = plainForm(tf.Prefixes, func(p []netip.Prefix) types.Set {
		if len(p) == 0 {
			return types.SetNull(cidrtypes.IPv4PrefixType{})
		}
		return tf.PrefixesValue(p)
	})
	texts = plainForm(func(v types.List) []string { return tf.Strings(v.Elements()) }, func(s []string) types.List {
		if len(s) == 0 {
			return types.ListNull(types.StringType)
		}
		return tf.StringsValue(s)
	})
	textByName = plainForm(tf.StringMap, func(m map[string]string) types.Map {
		if len(m) == 0 {
			return types.MapNull(types.StringType)
		}
		return tf.StringMapValue(m)
	})
	// object is a configuration object; one that is not known in full is none.
	object = plainForm(configFrom, objectValue)
	// objectByName are configuration objects by name; null is nil. Names are known
	// before all of an object is.
	objectByName = plainForm(func(v types.Dynamic) map[string]map[string]any {
		var out map[string]map[string]any
		objects, _ := freeform.Map(v)
		for name, config := range objects {
			if out == nil {
				out = map[string]map[string]any{}
			}
			out[name], _ = config.(map[string]any)
		}
		return out
	}, func(m map[string]map[string]any) types.Dynamic {
		out := map[string]any{}
		for name, config := range m {
			out[name] = config
		}
		return objectValue(out)
	})
)

// configFrom returns a configuration object all of which is known; nil when
// there is none.
func configFrom(v types.Dynamic) map[string]any {
	config, known := freeform.Map(v)
	if !known {
		return nil
	}
	return config
}

// objectValue is the opposite; an empty object becomes null.
func objectValue(m map[string]any) types.Dynamic {
	if len(m) == 0 {
		return types.DynamicNull()
	}
	v, err := freeform.Value(m)
	if err != nil {
		return types.DynamicNull() // what JSON cannot hold was not read from a file
	}
	return v
}

// flagsOf is the setting `extra_args`. join points to the argument and to the
// flags of each program.
func flagsOf[M, S any](programs programList, join func(*M, *S) (*types.Object, map[string]*component.Args)) setting[M, S] {
	return setting[M, S]{
		attribute: programs.attribute(),
		toSpec: func(_ context.Context, m *M, s *S) {
			argument, fields := join(m, s)
			for program, field := range fields {
				*field = extraArgs(*argument, program)
			}
		},
		fromSpec: func(_ context.Context, s *S, m *M) {
			argument, fields := join(m, s)
			if !argument.IsNull() {
				return
			}
			found := map[string]component.Args{}
			for program, field := range fields {
				found[program] = *field
			}
			*argument = programs.value(found)
		},
	}
}
