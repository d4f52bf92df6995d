package remote_test

import (
	"context"
	"fmt"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// A machine without a pinned host key is refused.
func ExamplePool_Machine() {
	pool := remote.NewPool(remote.Config{})
	defer pool.Close()
	machine := pool.Machine(remote.Host{Name: "controller-0", Address: "203.0.113.10", User: "admin"})
	fmt.Println(machine.Ping(context.Background()))
	// Output: machine controller-0 (203.0.113.10:22): no SSH host key is pinned, refusing to connect
}
