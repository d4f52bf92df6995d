package aws

import (
	"context"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"
)

// Refusal says that AWS refused one attempt of a call, also if a later attempt succeeded. It has
// nothing of the message that can be read: messages may name accounts and addresses.
type Refusal struct {
	Service, Action string // such as "EC2", "RunInstances"
	Code            string // such as "RequestLimitExceeded"
	// Encoded is what EC2 says of a missing permission, for sts:DecodeAuthorizationMessage; empty if it says nothing.
	Encoded string
}

// RefusalMessage is what the provider logs of a Refusal, at level DEBUG. Its fields are service,
// action, code and, if it is not empty, encoded.
const RefusalMessage = "AWS refused a call"

// reportRefusals adds to a service's calls that each refused attempt is reported. It is inside of
// the retries.
func reportRefusals(report func(context.Context, Refusal)) func(*middleware.Stack) error {
	return func(s *middleware.Stack) error {
		return s.Deserialize.Add(middleware.DeserializeMiddlewareFunc("ReportRefusals",
			func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
				out, metadata, err := next.HandleDeserialize(ctx, in)
				if code := ErrorCode(err); code != "" {
					report(ctx, Refusal{awsmiddleware.GetServiceID(ctx), awsmiddleware.GetOperationName(ctx), code, encodedIn(err)})
				}
				return out, metadata, err
			}), middleware.Before)
	}
}
