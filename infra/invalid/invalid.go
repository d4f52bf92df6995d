// Package invalid holds errors about the fields of a specification as data, so that the code that
// shows them need not know the rules.
//
// It imports nothing of this repository. What may not enter: the rules themselves.
package invalid

import (
	"errors"
	"fmt"
)

// Field is an error about one field of a specification.
type Field struct {
	// Field is the path of the field, in the names that it has in a configuration: "service_cidr",
	// "hosts[0].pod_cidr", `admission_plugins["PodSecurity"]`, `extra_args.kubelet["v"]`.
	Field string
	// Problem says in a few words what kind of mistake it is: "Overlapping networks".
	Problem string
	// Missing is set if the field is empty, perhaps only because its value is not known yet.
	Missing bool
	// Err says what is wrong.
	Err error
}

func (e *Field) Error() string { return e.Field + ": " + e.Err.Error() }

// Unwrap returns what is wrong.
func (e *Field) Unwrap() error { return e.Err }

// Fields are the errors of a specification, as far as it is known. A check skips empty fields
// unless they are required.
type Fields []*Field

// Err joins the errors; nil when there are none.
func (f Fields) Err() error {
	errs := make([]error, len(f))
	for i, e := range f {
		errs[i] = e
	}
	return errors.Join(errs...)
}

// Add adds an error, unless err is nil.
func (f *Fields) Add(field, problem string, err error) {
	if err != nil {
		*f = append(*f, &Field{Field: field, Problem: problem, Err: err})
	}
}

// Say adds the error that [fmt.Errorf] makes of format and args.
func (f *Fields) Say(field, problem, format string, args ...any) {
	f.Add(field, problem, fmt.Errorf(format, args...))
}

// Miss is Say for a field that is empty and must not be.
func (f *Fields) Miss(field, problem, format string, args ...any) {
	f.Add(field, problem, fmt.Errorf(format, args...))
	(*f)[len(*f)-1].Missing = true
}
