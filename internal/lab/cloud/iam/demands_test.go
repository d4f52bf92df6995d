package iam_test

import (
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/elbv2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iamapi"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ssm"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/sts"
)

// TestDemands: every action served is described.
func TestDemands(t *testing.T) {
	d, err := iam.Open(iam.Config{AccountID: "123456789012", Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	a := iam.Account{
		Identities: d,
		ID:         "123456789012", Region: "us-east-1", Resources: func(_, id string) []iam.Resource { return []iam.Resource{{Type: "vpc", Name: id}} },
		ParameterTags: func(string) (map[string]string, bool) { return nil, false },
	}
	for service, actions := range map[string][]string{"ec2": ec2.Actions(), "ssm": ssm.Actions(), "sts": sts.Actions(), "elasticloadbalancing": elbv2.Actions(), "iam": iamapi.Actions()} {
		for _, action := range actions {
			if _, ok := a.Demands(iam.Call{Service: service, Action: action}); !ok {
				t.Errorf("internal/lab/cloud/iam/demands.go does not say what %s:%s demands: add a line to its table", service, action)
			}
		}
	}
}
