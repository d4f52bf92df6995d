package aws

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
)

// TestPace makes launches and other calls at once. Every third launch is throttled all the same, and
// its retry takes a turn like all others.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, attempts := time.Now(), map[string][]time.Duration{}
		answer := middleware.DeserializeMiddlewareFunc("Answer", func(ctx context.Context, in middleware.DeserializeInput, _ middleware.DeserializeHandler) (out middleware.DeserializeOutput, _ middleware.Metadata, err error) {
			action := middleware.GetOperationName(ctx)
			attempts[action] = append(attempts[action], time.Since(began))
			out.Result = map[string]any{"RunInstances": &ec2.RunInstancesOutput{}, "StartInstances": &ec2.StartInstancesOutput{}, "DescribeInstances": &ec2.DescribeInstancesOutput{}}[action]
			if action == "RunInstances" && len(attempts[action])%3 == 0 {
				err = &smithy.GenericAPIError{Code: "RequestLimitExceeded"}
			}
			return out, middleware.Metadata{}, err
		})
		client := ec2.New(ec2.Options{Region: "eu-central-1", Retryer: retry.NewStandard(), APIOptions: []func(*middleware.Stack) error{
			newEC2Pacer().pace, func(s *middleware.Stack) error { return s.Deserialize.Add(answer, middleware.Before) },
		}})
		for range 10 {
			if _, err := client.RunInstances(t.Context(), &ec2.RunInstancesInput{MinCount: sdk.Int32(1), MaxCount: sdk.Int32(1)}); err != nil {
				t.Fatal(err)
			}
			if _, err := client.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{}); err != nil {
				t.Fatal(err)
			}
		}
		launches := attempts["RunInstances"]
		if len(launches) != 14 { // 10, and 4 retries
			t.Errorf("%d launches", len(launches))
		}
		for n, at := range launches {
			if n >= launchBurst && at < time.Duration(n-launchBurst+1)*time.Second/launchRate-time.Millisecond {
				t.Errorf("launch %d came after %s", n, at)
			}
		}
		hurried, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		var err error
		for range 2 * launchBurst {
			if _, err = client.StartInstances(hurried, &ec2.StartInstancesInput{InstanceIds: []string{"i-1"}}); err != nil {
				break
			}
		}
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "wait for a turn, since EC2 takes 2 calls of StartInstances a second") {
			t.Errorf("starts without time for their turn: %v", err)
		}
	})
}
