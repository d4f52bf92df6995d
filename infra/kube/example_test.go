package kube_test

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kube"
)

// Waits for an API server and asks for its nodes.
func Example() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var ca, cert, key []byte // PEM, from package pki
	client, err := kube.New(kube.Access{Endpoint: "https://198.51.100.10:6443", CA: ca, Cert: cert, Key: key})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	if err := client.WaitReady(ctx, 150*time.Millisecond, nil); err != nil {
		fmt.Println(err)
		return
	}
	nodes, err := client.Nodes(ctx)
	fmt.Println(nodes, err)
	// Output: connecting to https://198.51.100.10:6443: the CA bundle holds no certificate
}

// Prints what differs between a node and what is wanted of it.
func ExampleNodeDrift() {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "worker-0", Labels: map[string]string{"pool": "red"}}}
	for _, f := range kube.NodeDrift(node, kube.NodeSpec{
		Name: "worker-0", Labels: map[string]string{"pool": "blue"}, PodCIDR: "10.200.0.0/24",
	}) {
		fmt.Println(f)
	}
	// Output:
	// node label pool: found "red", wanted "blue"
	// node spec.podCIDR: missing, wanted 10.200.0.0/24
}

// References are to the same object whatever the version of its API.
func ExampleObjectRef_Same() {
	old := kube.ObjectRef{APIVersion: "policy/v1beta1", Kind: "PodDisruptionBudget", Namespace: "default", Name: "web"}
	now := kube.ObjectRef{APIVersion: "policy/v1", Kind: "PodDisruptionBudget", Name: "web"}
	fmt.Println(now, old.Same(now))
	// Output: PodDisruptionBudget web true
}
