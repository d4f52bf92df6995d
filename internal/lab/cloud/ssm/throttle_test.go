package ssm_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsssm "github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

// TestThroughput empties the buckets of Parameter Store, and lets them refill.
func TestThroughput(t *testing.T) {
	l := cloudtest.New(t, func(l *cloudtest.Lab) { l.Throttled = true })
	ctx, n := t.Context(), 0
	put := func() error {
		n++
		_, err := l.SSM.PutParameter(ctx, &awsssm.PutParameterInput{Name: aws.String("/p" + strconv.Itoa(n)), Type: types.ParameterTypeString, Value: aws.String("v")})
		return err
	}
	reads := []func() error{
		func() error {
			_, err := l.SSM.GetParameter(ctx, &awsssm.GetParameterInput{Name: aws.String("/p1")})
			return err
		},
		func() error {
			_, err := l.SSM.GetParameters(ctx, &awsssm.GetParametersInput{Names: []string{"/p1"}})
			return err
		},
		func() error {
			_, err := l.SSM.GetParametersByPath(ctx, &awsssm.GetParametersByPathInput{Path: aws.String("/")})
			return err
		},
	}
	for _, passed := range []time.Duration{0, time.Second, time.Hour} {
		l.Clock.Advance(passed)
		for _, tt := range []struct {
			name string
			most int
			call func(i int) error
		}{
			{"writes", 3, func(int) error { return put() }},
			{"reads", 40, func(i int) error { return reads[i%len(reads)]() }},
		} {
			got := 0
			for got < 100 {
				err := tt.call(got)
				if cloudtest.Code(err) == "ThrottlingException" {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				got++
			}
			if got != tt.most {
				t.Errorf("after %s %d %s at once, wanted %d", passed, got, tt.name, tt.most)
			}
		}
	}
	if _, err := l.SSM.DeleteParameter(ctx, &awsssm.DeleteParameterInput{Name: aws.String("/p1")}); err != nil {
		t.Errorf("a deletion: %v", err)
	}
}
