package aws

import (
	"errors"
	"testing"

	"github.com/aws/smithy-go"
)

func TestReadDenied(t *testing.T) {
	const user = "arn:aws:iam::123456789012:user/u"
	for message, want := range map[string]string{
		"You are not authorized to perform this operation. User: " + user + " is not authorized to perform: ec2:RunInstances on resource: arn:aws:ec2:eu-central-1:123456789012:volume/* because no identity-based policy allows the ec2:RunInstances action. Encoded authorization failure message: AbC-_9":                                                      user + " is not authorized to perform ec2:RunInstances on arn:aws:ec2:eu-central-1:123456789012:volume/* because no identity-based policy allows the ec2:RunInstances action (UnauthorizedOperation)",
		"You are not authorized to perform this operation. User: " + user + " is not authorized to perform: ec2:DescribeVpcs because no identity-based policy allows the ec2:DescribeVpcs action":                                                                                                                                                                 user + " is not authorized to perform ec2:DescribeVpcs because no identity-based policy allows the ec2:DescribeVpcs action (UnauthorizedOperation)",
		"You are not authorized to perform this operation. User: " + user + " is not authorized to perform: ec2:CreateVpc on resource: arn:aws:ec2:eu-central-1:123456789012:vpc/* with an explicit deny in a service control policy: arn:aws:organizations::210987654321:policy/o-a1/service_control_policy/p-b2. Encoded authorization failure message: AbC-_9": user + " is not authorized to perform ec2:CreateVpc on arn:aws:ec2:eu-central-1:123456789012:vpc/* with an explicit deny in a service control policy: arn:aws:organizations::210987654321:policy/o-a1/service_control_policy/p-b2 (UnauthorizedOperation)",
		"User: " + user + " is not authorized to perform: ssm:DescribeParameters":                         user + " is not authorized to perform ssm:DescribeParameters (UnauthorizedOperation)",
		"You are not authorized to perform this operation. Encoded authorization failure message: AbC-_9": "not authorized to perform ec2:StopInstances (UnauthorizedOperation): You are not authorized to perform this operation.",
		"Not you.": "not authorized to perform ec2:StopInstances (UnauthorizedOperation): Not you.",
	} {
		api := &smithy.GenericAPIError{Code: "UnauthorizedOperation", Message: message}
		denied := readDenied(api)
		if denied.Action == "" {
			denied.Action = "ec2:StopInstances" // as the middleware does
		}
		if got := denied.Error(); got != want {
			t.Errorf("%s:\n%s\nwant %s", message, got, want)
		}
		if !errors.Is(denied, api) || !IsCode(denied, "UnauthorizedOperation") {
			t.Error("the code is lost")
		}
	}
}
