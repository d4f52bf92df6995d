package wire

import (
	"encoding/base64"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// Decode fills the struct dst points to from the form parameters of the query protocol, in which
// structures are dotted ("Filter.1.Value.2") and EC2's lists flat ("InstanceId.1"; EC2 API
// Reference, "Query requests"). A field's parameter is its Go name or its `query` tag; embedded
// structs are flattened. Supported: string, bool, int, []byte (base64), structs, slices, and
// pointers to them (nil when the parameter is absent).
//
// Unknown parameters are refused with UnknownParameter, as EC2 does: ignoring one would accept a
// request that means something else on AWS.
func Decode(form url.Values, dst any) error {
	d := decoder{form: form, used: map[string]bool{"Action": true, "Version": true}}
	if err := d.structure("", reflect.ValueOf(dst).Elem()); err != nil {
		return err
	}
	var unknown []string
	for k := range form {
		if !d.used[k] && !strings.HasPrefix(k, "X-Amz-") {
			unknown = append(unknown, k)
		}
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return Refuse("UnknownParameter", "The parameter %s is not recognized", unknown[0])
	}
	return nil
}

type decoder struct {
	form url.Values
	used map[string]bool
}

func (d *decoder) structure(prefix string, v reflect.Value) error {
	for field, fv := range v.Fields() {
		if field.Anonymous {
			if err := d.structure(prefix, fv); err != nil {
				return err
			}
			continue
		}
		name := field.Tag.Get("query")
		if name == "" {
			name = field.Name
		}
		if err := d.value(prefix+name, fv); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) value(name string, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Pointer:
		if !d.present(name) {
			return nil
		}
		v.Set(reflect.New(v.Type().Elem()))
		return d.value(name, v.Elem())
	case reflect.Struct:
		if d.form.Has(name) && d.form.Get(name) == "" { // an empty list of IAM and STS may be sent as "Name="
			d.used[name] = true
		}
		return d.structure(name+".", v)
	case reflect.Slice:
		if v.Type().Elem().Kind() != reflect.Uint8 {
			return d.list(name, v)
		}
	}
	if !d.form.Has(name) {
		return nil
	}
	d.used[name] = true
	return scalar(name, d.form.Get(name), v)
}

func scalar(name, raw string, v reflect.Value) error {
	invalid := func(kind string) error {
		return Refuse("InvalidParameterValue", "Invalid value '%s' for %s. Must be a valid %s.", raw, name, kind)
	}
	switch v.Kind() {
	case reflect.String:
		v.SetString(raw)
	case reflect.Bool:
		b, err := strconv.ParseBool(raw)
		if err != nil {
			return invalid("boolean")
		}
		v.SetBool(b)
	case reflect.Int:
		n, err := strconv.Atoi(raw)
		if err != nil {
			return invalid("integer")
		}
		v.SetInt(int64(n))
	case reflect.Slice:
		b, err := base64.StdEncoding.DecodeString(raw)
		if err != nil {
			return invalid("base64 value")
		}
		v.SetBytes(b)
	default:
		return Refuse("InternalError", "the parameter %s has no decoder", name)
	}
	return nil
}

func (d *decoder) list(name string, v reflect.Value) error {
	if d.form.Has(name) { // an empty list may be sent as "Name="
		d.used[name] = true
	}
	for _, n := range d.indexes(name) {
		item := reflect.New(v.Type().Elem()).Elem()
		if err := d.value(name+"."+strconv.Itoa(n), item); err != nil {
			return err
		}
		v.Set(reflect.Append(v, item))
	}
	return nil
}

// indexes returns the list positions given for name, ascending.
func (d *decoder) indexes(name string) []int {
	var out []int
	for k := range d.form {
		rest, ok := strings.CutPrefix(k, name+".")
		if !ok {
			continue
		}
		index, _, _ := strings.Cut(rest, ".")
		if n, err := strconv.Atoi(index); err == nil && !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}

func (d *decoder) present(name string) bool {
	if d.form.Has(name) {
		return true
	}
	for k := range d.form {
		if strings.HasPrefix(k, name+".") {
			return true
		}
	}
	return false
}
