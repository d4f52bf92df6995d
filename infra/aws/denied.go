package aws

import (
	"context"

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
	if e.said != "" {
		text += ": " + e.said
	}
	return text
}

// Unwrap returns AWS' answer.
func (e *DeniedError) Unwrap() error { return e.err }

// nameDenied is a middleware that turns AWS' refusal for want of a permission into a DeniedError.
// Its text says what is missing and leaves out the encoded message.
func nameDenied(service string) func(*middleware.Stack) error {
	return func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("NameDenied",
			func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
				out, meta, err := next.HandleInitialize(ctx, in)
				if IsCode(err, "UnauthorizedOperation", "AccessDenied", "AccessDeniedException") {
					denied := readDenied(err)
					if denied.Action == "" {
						denied.Action = service + ":" + middleware.GetOperationName(ctx)
					}
					err = denied
				}
				return out, meta, err
			}), middleware.After)
	}
}
