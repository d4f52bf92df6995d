package cluster_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// testIAM compares the AWS calls of all earlier steps with the IAM actions in the README.
func (c *cluster) testIAM(t *testing.T) {
	var calls map[string]int
	if err := suite.Control(t.Context(), "GET", "/_lab/calls", nil, &calls); err != nil {
		t.Fatal(err)
	}
	if calls["RunInstances"] < 6 {
		t.Fatalf("the local EC2 counted no calls: %v", calls)
	}
	delete(calls, "RebootInstances") // made by testResolver itself
	readme := readAll(t, filepath.Join(suite.Root, "README.md"))
	for action := range calls {
		found := false
		for _, service := range []string{"ec2:", "ssm:", "sts:"} {
			for _, end := range []string{" ", "\n"} {
				found = found || strings.Contains(readme, service+action+end)
			}
		}
		if !found {
			t.Errorf("the README's IAM actions lack %s", action)
		}
	}
}
