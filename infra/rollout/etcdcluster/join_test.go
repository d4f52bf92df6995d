package etcdcluster

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/etcd"
)

func TestJoinedWith(t *testing.T) {
	wanted := []component.Node{{Name: "c", PrivateIP: netip.MustParseAddr("10.0.0.3")}}
	members := []etcd.Member{
		{ID: 2, Name: "b", PeerURLs: []string{"https://10.0.0.2:2380"}},
		{ID: 3, PeerURLs: []string{"https://10.0.0.3:2380"}},
		{ID: 0xd, PeerURLs: []string{"https://10.0.0.4:2380"}},
		{ID: 1, Name: "a", PeerURLs: []string{"https://10.0.0.1:2380"}},
	}
	got, err := joinedWith(members, wanted)
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for _, n := range got {
		words = append(words, n.Name+"="+component.EtcdPeerURL(n))
	}
	if want := "a=https://10.0.0.1:2380 b=https://10.0.0.2:2380 c=https://10.0.0.3:2380 d=https://10.0.0.4:2380"; strings.Join(words, " ") != want {
		t.Errorf("initial cluster = %q, wanted %q", words, want)
	}
	for _, url := range []string{"https://10.0.0.1:2381", "https://name:2380", "%"} {
		if _, err := joinedWith([]etcd.Member{{Name: "a", PeerURLs: []string{url}}}, nil); err == nil {
			t.Errorf("a peer on %s was accepted", url)
		}
	}
	if _, err := joinedWith([]etcd.Member{{Name: "a"}}, nil); err == nil {
		t.Error("a member without peer address was accepted")
	}
}
