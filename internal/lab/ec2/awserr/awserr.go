// Package awserr is the one error type the local EC2's services answer with:
// a code and a message as AWS documents them, and the HTTP status they travel
// under. Wire formats stay with the services; this package knows none.
package awserr

import (
	"errors"
	"fmt"
	"net/http"
)

// Error is a refusal as an AWS service words it.
type Error struct {
	Code    string // such as "DependencyViolation"
	Message string
	Status  int // HTTP status; 0 means 400
}

// New returns an Error answered with HTTP status 400, which most AWS client errors use.
func New(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// WithStatus returns an Error answered with the given HTTP status.
func WithStatus(status int, code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...), Status: status}
}

// Error implements error.
func (e *Error) Error() string { return e.Code + ": " + e.Message }

// HTTPStatus is the status the error is answered with.
func (e *Error) HTTPStatus() int {
	if e.Status == 0 {
		return http.StatusBadRequest
	}
	return e.Status
}

// From returns err itself when it is (or wraps) an Error, and AWS's InternalError otherwise.
func From(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	return WithStatus(http.StatusInternalServerError, "InternalError", "An internal error has occurred: %v", err)
}
