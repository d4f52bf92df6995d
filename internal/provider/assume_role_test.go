package provider_test

import (
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestSessionTags: a role may do what the tags and the source identity of its session allow, and both need a permission
// in its trust policy.
func TestSessionTags(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	put := func(name, actions string) {
		t.Helper()
		_, err := c.Account.Cloud.Identities().PutRole(name, iam.Entity{Tags: map[string]string{"k8s-cluster": "other"}, Policies: []string{`{"Version":"2012-10-17","Statement":{
			"Effect":"Allow","Action":"*","Resource":"*","Condition":{"StringEquals":{"aws:PrincipalTag/k8s-cluster":"demo","aws:SourceIdentity":"ada"}}}}`}},
			`{"Version":"2012-10-17","Statement":{"Effect":"Allow","Action":[`+actions+`],"Principal":{"AWS":"arn:aws:iam::123456789012:root"}}}`)
		if err != nil {
			t.Fatal(err)
		}
	}
	put("member", `"sts:AssumeRole","sts:TagSession","sts:SetSourceIdentity"`)
	put("untagged", `"sts:AssumeRole","sts:SetSourceIdentity"`)
	put("anonymous", `"sts:AssumeRole","sts:TagSession"`)
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	as := func(role string, more providertest.Values) string {
		t.Helper()
		c.More = providertest.Values{"assume_role": providertest.With(providertest.Values{"role_arn": "arn:aws:iam::123456789012:role/" + role, "session_name": "run"}, more)}
		return c.Process(t).Taken(network).Refreshed()
	}
	demo := providertest.Values{"tags": providertest.Values{"k8s-cluster": "demo"}, "source_identity": "ada", "transitive_tag_keys": []any{"k8s-cluster"}}
	if failure := as("member", demo); failure != "" {
		t.Error(failure)
	}
	for name, config := range map[string]providertest.Values{
		"another cluster": {"tags": providertest.Values{"k8s-cluster": "bob"}, "source_identity": "ada"},
		"somebody else":   {"tags": providertest.Values{"k8s-cluster": "demo"}, "source_identity": "bob"},
		"no tags":         {"source_identity": "ada"},
	} {
		failure := as("member", config)
		t.Log(name, failure)
		providertest.Mention(t, failure, "ec2:Describe", "assumed-role/member/run is not authorized")
	}
	providertest.Mention(t, as("untagged", demo), "no AWS credentials", "sts:TagSession")
	providertest.Mention(t, as("anonymous", demo), "no AWS credentials", "sts:SetSourceIdentity")
}
