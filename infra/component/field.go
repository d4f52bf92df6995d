package component

import (
	"errors"
	"fmt"
	"strings"
)

// FieldError says that a field of a specification cannot be as it is.
type FieldError struct {
	// Field is the path of the field, in the names that it has in a configuration:
	// "service_cidr", "hosts[0].pod_cidr", `admission_plugins["PodSecurity"]`,
	// `extra_args.kubelet["v"]`.
	Field string
	// Problem says in a few words what kind of mistake it is: "Overlapping networks".
	Problem string
	// Missing says that the field is empty, which may merely mean that its value is
	// not known yet.
	Missing bool
	// Err says what is wrong.
	Err error
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }
func (e *FieldError) Unwrap() error { return e.Err }

// FieldErrors are all that is wrong with a specification, as far as it is known:
// what is empty is passed over, unless it must not be.
type FieldErrors []*FieldError

// Err joins the errors; nil when there are none.
func (f FieldErrors) Err() error {
	errs := make([]error, len(f))
	for i, e := range f {
		errs[i] = e
	}
	return errors.Join(errs...)
}

// add adds an error unless it is nil.
func (f *FieldErrors) add(field, problem string, err error) {
	if err != nil {
		*f = append(*f, &FieldError{Field: field, Problem: problem, Err: err})
	}
}

func (f *FieldErrors) say(field, problem, format string, args ...any) {
	f.add(field, problem, fmt.Errorf(format, args...))
}

// miss is say for a field that is empty.
func (f *FieldErrors) miss(field, problem, format string, args ...any) {
	f.add(field, problem, fmt.Errorf(format, args...))
	(*f)[len(*f)-1].Missing = true
}

// ArgField is the field of a flag of a program, by their names: kube-apiserver, v.
func ArgField(program, flag string) string {
	return fmt.Sprintf("extra_args.%s[%q]", strings.ReplaceAll(program, "-", "_"), flag)
}
