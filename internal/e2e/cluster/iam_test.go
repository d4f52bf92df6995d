package cluster_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"
)

// testIAM compares the AWS calls of all earlier steps with member.json of examples/iam, under which
// Terraform ran.
func (c *cluster) testIAM(t *testing.T) {
	var calls map[string]int
	if err := suite.Control(t.Context(), "GET", "/_lab/calls", nil, &calls); err != nil {
		t.Fatal(err)
	}
	if calls["RunInstances"] < 6 {
		t.Fatalf("the local EC2 counted no calls: %v", calls)
	}
	delete(calls, "RebootInstances")   // made by testResolver itself
	delete(calls, "GetCallerIdentity") // needs no permission
	var allowed []string
	var policy struct{ Statement []struct{ Action any } }
	if err := json.Unmarshal([]byte(readAll(t, filepath.Join(suite.Root, "examples", "iam", "member.json"))), &policy); err != nil {
		t.Fatal(err)
	}
	for _, s := range policy.Statement {
		if one, ok := s.Action.(string); ok {
			allowed = append(allowed, one)
		}
		many, _ := s.Action.([]any)
		for _, a := range many {
			allowed = append(allowed, a.(string))
		}
	}
	for action := range calls {
		if !slices.ContainsFunc([]string{"ec2:", "elasticloadbalancing:", "ssm:", "sts:"}, func(service string) bool { return slices.Contains(allowed, service+action) }) {
			t.Errorf("examples/iam/member.json lacks %s", action)
		}
	}
	// TestPolicies leaves these to this run.
	for _, action := range []string{"DescribeInstanceStatus", "DescribeTags"} {
		if calls[action] == 0 {
			t.Errorf("nothing called %s", action)
		}
	}
}
