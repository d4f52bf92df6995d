package etcd_test

import (
	"context"
	"fmt"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
)

// Replaces a member: the lost one is removed, the new one joins as a learner.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var ca, cert, key []byte // PEM, from package pki
	client, err := etcd.New(etcd.Access{Endpoint: "https://10.240.0.10:2379", CA: ca, Cert: cert, Key: key})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	const lost etcd.ID = 0x8e9e05c52164694d
	if err := client.Remove(ctx, lost); err != nil {
		fmt.Println(err)
		return
	}
	learner, err := client.AddLearner(ctx, "https://10.240.0.13:2380")
	if err != nil {
		fmt.Println(err)
		return
	}
	// Start etcd on the new machine here, with the present members.
	fmt.Println(client.Promote(ctx, learner.ID, nil))
	// Output: connecting to etcd https://10.240.0.10:2379: the CA bundle holds no certificate
}

func ExampleID() {
	fmt.Println(etcd.ID(0x8e9e05c52164694d))
	// Output: 8e9e05c52164694d
}
