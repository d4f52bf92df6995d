package kubeconfig_test

import (
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kubeconfig"
)

func TestCheckProxyURL(t *testing.T) {
	t.Parallel()
	for s, ok := range map[string]bool{
		"socks5://localhost:1080": true, "http://10.0.0.1:3128": true, "https://proxy.example": true,
		"localhost:1080": false, "socks5:localhost": false, "socks4://localhost:1080": false, "socks5://": false, "": false, ":": false,
	} {
		if err := kubeconfig.CheckProxyURL(s); (err == nil) != ok {
			t.Errorf("%q: %v", s, err)
		}
	}
}
