package roles

import (
	"context"
	"maps"
	"net/netip"
	"time"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/cidrtypes"
	"github.com/hashicorp/terraform-plugin-framework-nettypes/iptypes"
	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/freeform"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// settings are the arguments of a role that are fields of its specification, by name. M is the
// role's Terraform model, S its type in a package below rollout.
type settings[M, S any] map[string]setting[M, S]

// setting is one argument: its schema and its conversion to the specification and back. Null and
// unknown are the zero value of the specification.
type setting[M, S any] struct {
	attribute schema.Attribute
	toSpec    func(ctx context.Context, m *M, s *S)
	// fromSpec sets the argument if it is null: an argument in the import id overrides what the
	// import finds.
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

// addTo returns the attributes of a role with those of the settings added.
func (all settings[M, S]) addTo(attributes map[string]schema.Attribute) map[string]schema.Attribute {
	out := maps.Clone(attributes)
	for name, one := range all {
		out[name] = one.attribute
	}
	return out
}

// conversion converts a value between Terraform and a specification.
type conversion[V attr.Value, F any] struct {
	toSpec   func(context.Context, V) F
	fromSpec func(context.Context, F) V // the zero value becomes null
}

// newSetting returns a setting with the given conversion. join returns pointers to the argument and
// to the field.
func newSetting[M, S any, V attr.Value, F any](a schema.Attribute, f conversion[V, F], join func(*M, *S) (*V, *F)) setting[M, S] {
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

// plainConversion is a conversion that needs no context.
func plainConversion[V attr.Value, F any](toSpec func(V) F, fromSpec func(F) V) conversion[V, F] {
	return conversion[V, F]{func(_ context.Context, v V) F { return toSpec(v) }, func(_ context.Context, f F) V { return fromSpec(f) }}
}

var (
	text     = plainConversion(types.String.ValueString, tf.OptionalString)
	document = plainConversion(func(v types.String) []byte {
		if v.ValueString() == "" {
			return nil
		}
		return []byte(v.ValueString())
	}, func(b []byte) types.String { return tf.OptionalString(string(b)) })
	prefix    = plainConversion(tf.Prefix, tf.OptionalPrefix)
	address   = plainConversion(tf.Addr, tf.OptionalAddr)
	addresses = plainConversion(tf.Addrs, func(list []netip.Addr) types.List {
		if len(list) == 0 {
			return types.ListNull(iptypes.IPv4AddressType{})
		}
		return tf.AddrsValue(list)
	})
	number = plainConversion(func(v types.Int64) int { return int(v.ValueInt64()) }, func(n int) types.Int64 {
		if n == 0 {
			return types.Int64Null()
		}
		return types.Int64Value(int64(n))
	})
	// absence is a field that is true when the argument is false.
	absence = plainConversion(func(v types.Bool) bool { return v.Equal(types.BoolValue(false)) }, func(off bool) types.Bool { return types.BoolValue(!off) })
	// mebibytes is a size in MiB, in bytes in the specification.
	mebibytes = plainConversion(func(v types.Int64) int64 { return v.ValueInt64() << 20 }, func(n int64) types.Int64 {
		if n == 0 {
			return types.Int64Null()
		}
		return types.Int64Value(n >> 20)
	})
	duration = plainConversion(func(v timetypes.GoDuration) time.Duration { return tf.Duration(v, 0) }, func(d time.Duration) timetypes.GoDuration {
		if d == 0 {
			return timetypes.NewGoDurationNull()
		}
		return timetypes.NewGoDurationValue(d)
	})
	prefixes = plainConversion(tf.Prefixes, func(p []netip.Prefix) types.Set {
		if len(p) == 0 {
			return types.SetNull(cidrtypes.IPv4PrefixType{})
		}
		return tf.PrefixesValue(p)
	})
	addressByNetwork = plainConversion(reference.PodRoutesFrom, reference.PodRoutesValue)
	texts            = plainConversion(func(v types.List) []string { return tf.Strings(v.Elements()) }, func(s []string) types.List {
		if len(s) == 0 {
			return types.ListNull(types.StringType)
		}
		return tf.StringsValue(s)
	})
	textByName = plainConversion(tf.StringMap, func(m map[string]string) types.Map {
		if len(m) == 0 {
			return types.MapNull(types.StringType)
		}
		return tf.StringMapValue(m)
	})
	// object is a configuration object. An object of which a part is unknown is nil.
	object = plainConversion(configFrom, objectValue)
	// objectByName holds configuration objects by name; null is nil. Names may be known before the
	// objects are.
	objectByName = plainConversion(func(v types.Dynamic) map[string]map[string]any {
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

// configFrom returns a configuration object, or nil if a part of it is unknown or there is none.
func configFrom(v types.Dynamic) map[string]any {
	config, known := freeform.Map(v)
	if !known {
		return nil
	}
	return config
}

// objectValue is the inverse of configFrom. An empty object becomes null.
func objectValue(m map[string]any) types.Dynamic {
	if len(m) == 0 {
		return types.DynamicNull()
	}
	v, err := freeform.Value(m)
	if err != nil {
		return types.DynamicNull() // cannot happen: the value was read from a file
	}
	return v
}

// extraArgsSetting is the setting `extra_args`. join returns pointers to the argument and to the
// flags of each program.
func extraArgsSetting[M, S any](programs programList, join func(*M, *S) (*types.Object, map[string]*component.Args)) setting[M, S] {
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
