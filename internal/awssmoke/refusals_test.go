package main

import (
	"slices"
	"strings"
	"testing"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
)

// TestRefusals reads a log as Terraform writes it.
func TestRefusals(t *testing.T) {
	const log = `2026-11-23T12:00:00.000Z [INFO]  provider.terraform-provider-k8s_v0.1.0: machine: launching: machine=worker-0 tf_rpc=ApplyResourceChange timestamp=2026-11-23T12:00:00.000Z
2026-11-23T12:00:01.000Z [DEBUG] provider.terraform-provider-k8s_v0.1.0: AWS refused a call: tf_provider_addr=registry.terraform.io/k8s-from-scratch/k8s @caller=/src/provider_configure.go:229 action=RunInstances code=VeryNewCode @module=k8s service=EC2 tf_req_id=7a timestamp=2026-11-23T12:00:01.000Z
2026-11-23T12:00:02.000Z [DEBUG] provider.terraform-provider-k8s_v0.1.0: AWS refused a call: action=AssociateAddress code=InvalidInstanceID encoded=AbC-_9 service=EC2
2026-11-23T12:00:02.500Z [DEBUG] provider.terraform-provider-k8s_v0.1.0: AWS refused a call: action=AssociateAddress code=InvalidInstanceID service=EC2
2026-11-23T12:00:03.000Z [DEBUG] provider.terraform-provider-k8s_v0.1.0: AWS refused a call: action=GetCallerIdentity code="Odd \ code" service="STS"`
	found, err := readRefusals(strings.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	got := count(append(found, infraaws.Refusal{Service: "SSM", Action: "PutParameter", Code: "ThrottlingException"}))
	want := []codeCount{
		{"EC2", "AssociateAddress", "InvalidInstanceID", 2, true},
		{"EC2", "RunInstances", "VeryNewCode", 1, false},
		{"SSM", "PutParameter", "ThrottlingException", 1, true},
		{"STS", "GetCallerIdentity", `Odd \ code`, 1, false},
	}
	if !slices.Equal(got, want) {
		t.Errorf("%+v\nwant %+v", got, want)
	}
}
