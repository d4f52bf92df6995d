package aws

import (
	"context"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/smithy-go/middleware"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/timing"
)

// countCalls adds to a service's calls that each attempt is counted. It is inside of the retries, so
// the pauses between attempts are not part of a call.
func countCalls(r *timing.Recorder) func(*middleware.Stack) error {
	return func(s *middleware.Stack) error {
		return s.Deserialize.Add(middleware.DeserializeMiddlewareFunc("CountCalls",
			func(ctx context.Context, in middleware.DeserializeInput, next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
				defer r.Start(ctx, awsmiddleware.GetServiceID(ctx)+" "+awsmiddleware.GetOperationName(ctx))()
				return next.HandleDeserialize(ctx, in)
			}), middleware.Before)
	}
}
