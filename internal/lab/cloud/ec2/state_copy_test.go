package ec2

import (
	"reflect"
	"testing"
	"time"
)

// TestStateCopied fills every field of a state. The copy must be equal, and share no pointer, map or
// slice with it.
func TestStateCopied(t *testing.T) {
	st := newState()
	fill(reflect.ValueOf(st).Elem())
	c := st.copied()
	if !reflect.DeepEqual(st, c) {
		t.Errorf("the copy is another state: %+v", c)
	}
	apart(t, "state", reflect.ValueOf(st), reflect.ValueOf(c))
}

// whole reports whether a value is replaced as a whole: a time, or an address or prefix.
func whole(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && (t.PkgPath() == "time" || t.PkgPath() == "net/netip")
}

// fill gives every field of a value something that is not its zero value.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			v.Set(reflect.ValueOf(time.Unix(1, 0).UTC()))
		}
		for i := 0; i < v.NumField() && !whole(v.Type()); i++ {
			fill(v.Field(i))
		}
	case reflect.String:
		v.SetString("x")
	case reflect.Int:
		v.SetInt(1)
	case reflect.Bool:
		v.SetBool(true)
	default:
		panic("no value for " + v.Type().String())
	}
}

func apart(t *testing.T, path string, a, b reflect.Value) {
	t.Helper()
	switch a.Kind() {
	case reflect.Pointer, reflect.Map, reflect.Slice:
		if a.IsNil() || a.UnsafePointer() == b.UnsafePointer() {
			t.Errorf("%s is shared, or was not filled", path)
			return
		}
	}
	switch a.Kind() {
	case reflect.Pointer:
		apart(t, path, a.Elem(), b.Elem())
	case reflect.Map:
		for _, k := range a.MapKeys() {
			apart(t, path+"[]", a.MapIndex(k), b.MapIndex(k))
		}
	case reflect.Slice:
		apart(t, path+"[]", a.Index(0), b.Index(0))
	case reflect.Struct:
		for i := 0; i < a.NumField() && !whole(a.Type()); i++ {
			apart(t, path+"."+a.Type().Field(i).Name, a.Field(i), b.Field(i))
		}
	}
}
