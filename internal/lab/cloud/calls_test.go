package cloud_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/aws/aws-sdk-go-v2/service/ssm/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
)

// TestCallsAreLogged checks what the log of calls tells, and that it has no secrets.
func TestCallsAreLogged(t *testing.T) {
	var log bytes.Buffer
	l := cloudtest.New(t, func(l *cloudtest.Lab) { l.Calls = slog.New(slog.NewJSONHandler(&log, nil)) })
	ctx := t.Context()
	_, _ = l.DescribeInstances(ctx, &awsec2.DescribeInstancesInput{InstanceIds: []string{"i-0123456789abcdef0"}})
	if _, err := l.DescribeVpcs(ctx, &awsec2.DescribeVpcsInput{}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.SSM.PutParameter(ctx, &ssm.PutParameterInput{Name: aws.String("/k8s/demo/ca"), Value: aws.String("hush"), Type: types.ParameterTypeSecureString}); err != nil {
		t.Fatal(err)
	}
	_, _ = l.RunInstances(ctx, &awsec2.RunInstancesInput{ImageId: aws.String("ami-1"), MinCount: aws.Int32(1), MaxCount: aws.Int32(1), UserData: aws.String("aHVzaA==")})
	type call struct {
		Msg, Service, Action, Code, Caller string
		Resources                          []string
	}
	var calls []call
	for line := range strings.Lines(log.String()) {
		var c call
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatal(err)
		}
		calls = append(calls, c)
	}
	want := []call{
		{"refused", "ec2", "DescribeInstances", "InvalidInstanceID.NotFound", "", []string{"i-0123456789abcdef0"}},
		{"answered", "ec2", "DescribeVpcs", "", "", nil},
		{"answered", "ssm", "PutParameter", "", "", []string{"/k8s/demo/ca"}},
		{"refused", "ec2", "RunInstances", "InvalidAMIID.Malformed", "", []string{"ami-1"}},
	}
	if len(calls) != len(want) {
		t.Fatalf("%d calls in %s", len(calls), log.String())
	}
	for n, w := range want {
		c := calls[n]
		if c.Msg != w.Msg || c.Service != w.Service || c.Action != w.Action || c.Code != w.Code || !slices.Equal(c.Resources, w.Resources) || !strings.HasPrefix(c.Caller, "arn:aws:") {
			t.Errorf("call %d: %+v, want %+v", n, c, w)
		}
	}
	if strings.Contains(log.String(), "hush") || strings.Contains(log.String(), "aHVzaA") {
		t.Errorf("the log has a secret: %s", log.String())
	}
}
