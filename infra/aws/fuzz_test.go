package aws

import (
	"testing"

	"github.com/aws/smithy-go"
)

// FuzzDenied checks the reader of AWS' refusals.
func FuzzDenied(f *testing.F) {
	f.Add("UnauthorizedOperation", "You are not authorized to perform this operation. User: arn:aws:iam::1:user/x is not authorized to perform: ec2:RunInstances on resource: arn:aws:ec2:x because no identity-based policy allows it. Encoded authorization failure message: abc")
	f.Fuzz(func(t *testing.T, code, message string) {
		err := &smithy.GenericAPIError{Code: code, Message: message}
		_ = readDenied(err).Error()
		_, _ = UnknownProfile(err), Advice(err)
		_ = OwnerOf(map[string]string{TagResource: message, code: message})
	})
}
