package machine

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

func TestCheckInstanceProfile(t *testing.T) {
	for name, want := range map[string]string{
		"":                              "",
		"k8s-node":                      "",
		"a+b=c,d.e@f-g_1":               "",
		strings.Repeat("x", 128):        "",
		strings.Repeat("x", 129):        "cannot be the name",
		"team/node":                     "cannot be the name",
		"arn:aws:iam::1:role/node":      "is the ARN of a role",
		"arn:aws:iam::1:role/team/node": "is the ARN of a role",
		"arn:aws-cn:iam::1:x/team/y":    `only: "y"`,
		"arn:aws:iam::1:instance-profile/team/node": `only: "node"`,
	} {
		errs := CheckInstanceProfile(name)
		if want == "" && len(errs) > 0 || want != "" && (len(errs) != 1 || errs[0].Field != "instance_profile" || !strings.Contains(errs[0].Error(), want)) {
			t.Errorf("%q: %v, want %q", name, errs.Err(), want)
		}
	}
}

// TestUnknownProfile: a profile that EC2 does not know is waited for where something new may be
// used, and the error is about its argument. No other refusal of a parameter is treated like this.
func TestUnknownProfile(t *testing.T) {
	for message, unknown := range map[string]bool{
		"Value (node) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name":         true,
		`IAM Instance Profile "arn:aws:iam::123456789012:instance-profile/node" has no associated IAM Roles`:       true,
		"Value (m1.huge) for parameter instanceType is invalid.":                                                   false,
		"Value (us-east-1z) for parameter availabilityZone is invalid. Subnets can currently only be created in …": false,
	} {
		err := fmt.Errorf("launch: %w", &smithy.GenericAPIError{Code: "InvalidParameterValue", Message: message})
		c, failed := aws.New(t.Context(), aws.Config{Region: "eu-central-1"})
		if failed != nil {
			t.Fatal(failed)
		}
		var o ec2.Options
		c.RetryUntilKnown()(&o)
		want := 1
		if unknown {
			want = aws.ConsistencyAttempts
		}
		attempts := 1
		for attempts < 2*aws.ConsistencyAttempts && o.Retryer.IsErrorRetryable(err) {
			attempts++
		}
		var field *invalid.Field
		named := errors.As(aboutProfile(err), &field) && field.Field == "instance_profile"
		if attempts != want || named != unknown || (aws.Advice(err) != "") != unknown {
			t.Errorf("%s: %d attempts, want %d; about the argument: %t; advice: %q", message, attempts, want, named, aws.Advice(err))
		}
	}
	if err := aboutProfile(&aws.DeniedError{Action: "ec2:RunInstances"}); errors.As(err, new(*invalid.Field)) {
		t.Errorf("about the argument: %v", err)
	}
	if err := aboutProfile(&aws.DeniedError{Action: "iam:PassRole"}); !errors.As(err, new(*invalid.Field)) {
		t.Errorf("not about the argument: %v", err)
	}
	if aboutProfile(nil) != nil {
		t.Error("no error became one")
	}
}

func TestProfileIn(t *testing.T) {
	for arn, want := range map[string]string{
		"": "", "arn:aws:iam::1:instance-profile/node": "node", "arn:aws:iam::1:instance-profile/team/node": "node",
	} {
		i := types.Instance{}
		if arn != "" {
			i.IamInstanceProfile = &types.IamInstanceProfile{Arn: &arn}
		}
		if got := machineOf(i).InstanceProfile; got != want {
			t.Errorf("%s: %q, want %q", arn, got, want)
		}
	}
}
