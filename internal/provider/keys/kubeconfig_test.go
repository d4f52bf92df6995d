package keys_test

import (
	"crypto/x509"
	"encoding/pem"
	"slices"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/access"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestAdministrators checks that a certificate is in the group that a binding gives its permissions, and that the plan
// warns of the group from which nothing takes them.
func TestAdministrators(t *testing.T) {
	t.Parallel()
	c := providertest.NewCore(t, provider.New("test"), providertest.Values{})
	keys, kubeconfig := c.Instance("k8s_pki"), c.Instance("k8s_kubeconfig")
	keys.Must(providertest.Values{"cluster": "demo", "key_store": "state"})
	config := providertest.Values{"endpoint": "https://192.0.2.1:6443", "control_plane": providertest.With(providertest.NewRoles(t).Pool["control_plane"].(providertest.Values), providertest.Values{"pki": keys.Get("ref")})}
	masters := providertest.With(config, providertest.Values{"groups": []any{access.Masters}})
	for _, step := range []struct {
		config providertest.Values
		group  string
	}{{config, access.Administrators}, {masters, access.Masters}} {
		kubeconfig.Must(step.config)
		text, _ := kubeconfig.Get("client_certificate").(string)
		block, _ := pem.Decode([]byte(text))
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil || !slices.Equal(certificate.Subject.Organization, []string{step.group}) {
			t.Errorf("the groups are %v (%v), wanted %s", certificate.Subject.Organization, err, step.group)
		}
	}
	if said := providertest.Warnings(kubeconfig.Plan(config)); said != "" {
		t.Errorf("without groups a plan warns: %s", said)
	}
	providertest.Mention(t, providertest.Warnings(kubeconfig.Plan(masters)), "Access that cannot be taken back", access.Administrators)
}
