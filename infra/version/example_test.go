package version_test

import (
	"fmt"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

func Example() {
	running, _ := version.ParseSupported("1.35.8")
	wanted, _ := version.ParseSupported("v1.36.4")
	fmt.Println(version.CheckUpgrade(running, wanted))
	fmt.Println(version.CheckKubeletSkew(running, wanted))
	// Output:
	// <nil>
	// kubelet 1.36.4 is newer than the API server 1.35.8: upgrade the control plane first
}
