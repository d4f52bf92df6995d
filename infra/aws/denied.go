package aws

import (
	"cmp"
	"context"
	"errors"

	"github.com/aws/smithy-go/middleware"
)

// DeniedError says that the credentials lack a permission.
type DeniedError struct {
	Principal string // ARN of the caller; empty if AWS does not say it
	Action    string // "ec2:RunInstances"
	Resource  string // ARN; empty where an action has no resources, or if AWS does not say it
	Reason    string // which kind of policy denies it or does not allow it, in AWS' words; empty if AWS does not say it
	explicit  bool   // a policy denies it
	said      string // what AWS says instead
	err       error
}

func (e *DeniedError) Error() string {
	text := "not authorized to perform " + e.Action
	if e.Resource != "" {
		text += " on " + e.Resource
	}
	if e.Principal != "" {
		text = e.Principal + " is " + text
	}
	if e.Reason != "" {
		text += " " + e.Reason
	}
	text += " (" + ErrorCode(e.err) + ")"
	if e.said != "" && e.said != ErrorCode(e.err) {
		text += ": " + e.said
	}
	return text
}

// Unwrap returns AWS' answer.
func (e *DeniedError) Unwrap() error { return e.err }

// deniedCodes are the codes of AWS's refusals for a missing permission. S3 says Forbidden where its
// answer has no body.
var deniedCodes = []string{"UnauthorizedOperation", "AccessDenied", "AccessDeniedException", forbidden}

const forbidden = "Forbidden"

// permission returns the action of a policy that an operation needs.
func permission(service, operation string) string {
	if service == "s3" && operation == "HeadObject" { // S3 has no action of this name
		operation = "GetObject"
	}
	return service + ":" + operation
}

// NameAction returns AWS's refusal for a missing permission as a DeniedError. Its action is the given one if AWS
// names none. It returns an error about missing credentials without the SDK's own words, and any other error
// unchanged.
func NameAction(err error, action string) error {
	// Without credentials nobody was asked, and a role that cannot be assumed lacks another permission.
	if none := (*credentialsError)(nil); errors.As(err, &none) {
		return none
	}
	if !IsCode(err, deniedCodes...) {
		return err
	}
	denied := readDenied(err)
	denied.Action = cmp.Or(denied.Action, action)
	return denied
}

// nameDenied is a middleware that turns AWS's refusal for a missing permission into a DeniedError.
// Its text says what is missing and leaves out the encoded message.
func nameDenied(service string) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("NameDenied",
			func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
				out, meta, err := next.HandleInitialize(ctx, in)
				return out, meta, NameAction(err, permission(service, middleware.GetOperationName(ctx)))
			}), middleware.After)
	}
}
