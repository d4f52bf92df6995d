package controlplane

import (
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

func TestSealingFindings(t *testing.T) {
	for _, tt := range []struct {
		others map[int][]string
		want   string
	}{
		{nil, ""},
		{map[int][]string{1: {"a/b", "a/c", "a/d"}}, "3 secrets are still encrypted with key-1, wanted key-2"},
		{map[int][]string{1: {"a/b"}, plain: {"a/c"}}, "1 secret is not encrypted, wanted key-2; 1 secret is still encrypted with key-1, wanted key-2"},
		{map[int][]string{3: {"a/b"}}, "1 secret is already encrypted with key-3, wanted key-2"},
		{map[int][]string{foreign: {"a/b"}}, "1 secret is encrypted with an unknown key, wanted key-2"},
	} {
		if got := finding.Words(sealing{others: tt.others}.findings(2)); got != tt.want {
			t.Errorf("%v: %q, wanted %q", tt.others, got, tt.want)
		}
	}
}

func TestSealedUnder(t *testing.T) {
	for _, tt := range []struct {
		args component.Args
		want string
	}{
		{nil, "/registry/secrets/"},
		{component.SingleArgs(map[string]string{"etcd-prefix": "other"}), "/other/secrets/"},
		{component.SingleArgs(map[string]string{"encryption-provider-config": "/etc/own.yaml"}), ""},
	} {
		if got := (component.ControlPlaneSpec{APIServer: component.APIServerSpec{Args: tt.args}}).EncryptedUnder(); got != tt.want {
			t.Errorf("%v: %q, wanted %q", tt.args, got, tt.want)
		}
	}
}
