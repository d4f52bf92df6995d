package etcdcluster

import (
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
)

// FuzzMembers checks what is made of a list of members.
func FuzzMembers(f *testing.F) {
	f.Add("controller-0", "https://10.0.0.1:2380")
	f.Add("", "https://[::1]:2380")
	f.Fuzz(func(t *testing.T, name, peer string) {
		_, _ = nodeAt(name, peer)
		_, _ = joinedWith([]etcd.Member{{ID: 1, Name: name, PeerURLs: []string{peer}}, {ID: 2}}, []component.Node{{Name: "controller-1"}})
	})
}
