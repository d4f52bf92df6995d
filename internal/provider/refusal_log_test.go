package provider

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-log/tflogtest"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
)

// TestRefusalIsLogged reads in the log which call AWS refused, and nothing of the message.
func TestRefusalIsLogged(t *testing.T) {
	a := account.New(t)
	t.Setenv("AWS_ENDPOINT_URL", a.URL)
	m := providerModel{Region: types.StringValue("us-east-1"), AccessKey: types.StringValue(account.AccessKey), SecretKey: types.StringValue(account.SecretKey)}
	var d session.Session
	var diags diag.Diagnostics
	configureAWS(t.Context(), &d, environment{Getenv: os.Getenv}, "test", m, &diags)
	client, err := d.LoadAWS()
	if err != nil || diags.HasError() {
		t.Fatal(err, diags)
	}
	var log bytes.Buffer
	ctx := tflogtest.RootLogger(t.Context(), &log)
	if _, err := client.EC2.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{VpcIds: []string{"vpc-0123456789abcdef0"}}); err == nil {
		t.Fatal("the VPC exists")
	}
	lines, err := tflogtest.MultilineJSONDecode(&log)
	if err != nil || len(lines) != 1 {
		t.Fatalf("%v, logged %v", err, lines)
	}
	for key, want := range map[string]string{
		"@level": "debug", "@message": "AWS refused a call", "service": "EC2", "action": "DescribeVpcs", "code": "InvalidVpcID.NotFound",
	} {
		if lines[0][key] != want {
			t.Errorf("%s is %v, want %s", key, lines[0][key], want)
		}
	}
	if strings.Contains(fmt.Sprint(lines[0]), "vpc-0123") {
		t.Errorf("logged more than the code: %v", lines[0])
	}
}
