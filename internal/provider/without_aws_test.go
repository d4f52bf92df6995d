package provider_test

import (
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestWithoutAWS applies AWS resources under a provider configuration without a region, and under
// one without credentials. It is not parallel, since the environment must not have them either.
func TestWithoutAWS(t *testing.T) {
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_DEFAULT_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_WEB_IDENTITY_TOKEN_FILE",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	const other = "With several provider blocks, provider of the resource, or providers of its module, says which provider configuration it uses."
	for missing, test := range map[string]struct {
		provider providertest.Values
		says     []string
	}{
		"region":      {providertest.Values{"ssh": providertest.Values{"private_key": providertest.SSHKey(t)}}, []string{"no AWS region: set region, AWS_REGION", "Nothing was changed. " + other}},
		"credentials": {providertest.Values{"region": "eu-central-1", "ssh": providertest.Values{"private_key": providertest.SSHKey(t)}}, []string{"No AWS credentials were found: set access_key", other}},
	} {
		c := providertest.NewCore(t, provider.New("test"), test.provider)
		for resource, of := range map[string]struct {
			config providertest.Values
			at     string // attribute
			says   []string
		}{
			"k8s_network": {providertest.NetworkConfig(), "", []string{"Cannot make network demo"}},
			"k8s_pki":     {providertest.Values{"cluster": "demo"}, `"key_store"`, []string{"Cannot make the keys of cluster demo", `key_store = "state" needs no AWS`}},
		} {
			i := c.Instance(resource)
			got := providertest.Change{Errors: i.Apply(i.Plan(of.config))}.Failure()
			if of.at != "" && !strings.HasPrefix(got, of.at) {
				t.Errorf("%s without a %s: the error is not on %s: %s", resource, missing, of.at, got)
			}
			for _, want := range append(of.says, test.says...) {
				if !strings.Contains(got, want) {
					t.Errorf("%s without a %s: it does not say %q: %s", resource, missing, want, got)
				}
			}
		}
	}
}
