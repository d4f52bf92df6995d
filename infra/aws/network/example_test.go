package network_test

import (
	"fmt"
	"net/netip"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/network"
)

func ExampleCheckPrivateIP() {
	subnet := []netip.Prefix{netip.MustParsePrefix("10.240.0.0/24")}
	fmt.Println(network.CheckPrivateIP(netip.MustParseAddr("10.240.0.10"), subnet).Err())
	fmt.Println(network.CheckPrivateIP(netip.MustParseAddr("10.240.0.3"), subnet).Err())
	// Output:
	// <nil>
	// private_ip: 10.240.0.3 is reserved by AWS: the first four addresses of 10.240.0.0/24 and the last one cannot be used
}
