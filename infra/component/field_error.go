package component

import (
	"errors"
	"fmt"
	"strings"
)

// FieldError says that a field of a specification has an invalid value.
type FieldError struct {
	// Field is the field's path, in the names of the configuration:
	// "service_cidr", "hosts[0].pod_cidr", `admission_plugins["PodSecurity"]`,
	// `extra_args.kubelet["v"]`.
	Field string
	// Problem is the kind of mistake in a few words: "Overlapping networks".
	Problem string
	// Missing is set if the field is empty, which may only mean that its value is
	// not known yet.
	Missing bool
	// Err says what is wrong.
	Err error
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Err.Error() }
func (e *FieldError) Unwrap() error { return e.Err }

// FieldErrors are all errors found in a specification. Empty fields are errors only
// if they are required.
type FieldErrors []*FieldError

// Err joins the errors; nil if there are none.
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

// miss is say for an empty field.
func (f *FieldErrors) miss(field, problem, format string, args ...any) {
	f.add(field, problem, fmt.Errorf(format, args...))
	(*f)[len(*f)-1].Missing = true
}

// ArgField returns the field of a program's flag, for example of "kube-apiserver" and "v".
func ArgField(program, flag string) string {
	return fmt.Sprintf("extra_args.%s[%q]", strings.ReplaceAll(program, "-", "_"), flag)
}
