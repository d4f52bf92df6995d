package kubeconfig_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kubeconfig"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

func Example() {
	ctx := context.Background()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	store := pki.NewMemoryStore(nil)
	ref, err := pki.Bootstrap(ctx, store, "demo", now, rand.Reader, pki.Options{Store: pki.StoreState})
	if err != nil {
		fmt.Println(err)
		return
	}
	credential, err := kubeconfig.Issue(ctx, store, ref, kubeconfig.Request{Endpoint: "https://198.51.100.7:6443"}, now, rand.Reader)
	if err != nil {
		fmt.Println(err)
		return
	}
	text, err := credential.YAML()
	if err != nil {
		fmt.Println(err)
		return
	}
	config, err := clientcmd.Load(text)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(config.CurrentContext, config.Clusters["demo"].Server)
	fmt.Println("expires", credential.Expires.Format(time.RFC3339))
	// Output:
	// admin@demo https://198.51.100.7:6443
	// expires 2030-01-01T08:00:00Z
}
