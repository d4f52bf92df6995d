// Package wire implements how clients speak to the services: AWS's query and JSON protocols,
// signatures, and errors.
//
// It knows which service a request is for, and how each service words refusals. It knows nothing of
// the actions, and imports no other package of the lab.
package wire

import (
	"errors"
	"fmt"
	"net/http"
)

// Error is a service's error answer.
type Error struct {
	Code    string // such as "DependencyViolation"
	Message string
	Status  int // HTTP status; 0 means 400
}

// Refuse returns an Error answered with HTTP status 400, which most AWS client errors use.
func Refuse(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// RefuseWith returns an Error answered with the given HTTP status.
func RefuseWith(status int, code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Status: status}
}

// Error implements error.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// HTTPStatus returns the HTTP status of the answer.
func (e *Error) HTTPStatus() int {
	if e.Status == 0 {
		return http.StatusBadRequest
	}
	return e.Status
}

// AsError returns err itself when it is (or wraps) an Error, and AWS's InternalError otherwise.
func AsError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return RefuseWith(http.StatusInternalServerError, "InternalError", "An internal error has occurred: %v", err)
}
