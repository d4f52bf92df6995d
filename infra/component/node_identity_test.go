package component

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

const (
	regionLabel = "topology.kubernetes.io/region"
	zoneLabel   = "topology.kubernetes.io/zone"
	typeLabel   = "node.kubernetes.io/instance-type"
)

func TestNodeIdentity(t *testing.T) {
	instance := Node{Name: "worker-0", Zone: "us-west-2b", InstanceID: "i-0123456789abcdef0", InstanceType: "t3.medium"}
	with := func(change func(*Node)) Node {
		n := instance
		change(&n)
		return n
	}
	for _, tt := range []struct {
		name   string
		node   Node
		spec   KubeletSpec
		id     string
		labels map[string]string
	}{
		{"an instance", instance, KubeletSpec{}, "aws:///us-west-2b/i-0123456789abcdef0",
			map[string]string{regionLabel: "us-west-2", zoneLabel: "us-west-2b", typeLabel: "t3.medium"}},
		{"a Local Zone", with(func(n *Node) { n.Zone = "us-west-2-lax-1a" }), KubeletSpec{}, "aws:///us-west-2-lax-1a/i-0123456789abcdef0",
			map[string]string{regionLabel: "us-west-2", zoneLabel: "us-west-2-lax-1a", typeLabel: "t3.medium"}},
		{"another partition", with(func(n *Node) { n.Zone = "us-gov-east-1c" }), KubeletSpec{}, "aws:///us-gov-east-1c/i-0123456789abcdef0",
			map[string]string{regionLabel: "us-gov-east-1", zoneLabel: "us-gov-east-1c", typeLabel: "t3.medium"}},
		{"an instance of which the zone is not known", with(func(n *Node) { n.Zone = "" }), KubeletSpec{}, "", map[string]string{typeLabel: "t3.medium"}},
		{"an instance in a rack, as its user says", with(func(n *Node) { n.Zone = "rack-1" }), KubeletSpec{}, "", map[string]string{zoneLabel: "rack-1", typeLabel: "t3.medium"}},
		{"an own machine", Node{Name: "worker-0"}, KubeletSpec{}, "", nil},
		{"an own machine in a rack", Node{Name: "worker-0", Zone: "us-west-2b", InstanceType: "server"}, KubeletSpec{}, "", map[string]string{zoneLabel: "us-west-2b"}},
		{"a label of the user's", instance, KubeletSpec{Labels: map[string]string{regionLabel: "home", "tier": "a"}}, "aws:///us-west-2b/i-0123456789abcdef0",
			map[string]string{regionLabel: "home", zoneLabel: "us-west-2b", typeLabel: "t3.medium", "tier": "a"}},
		{"an identity of the user's", instance, KubeletSpec{Config: map[string]any{"providerID": "x"}}, "x",
			map[string]string{regionLabel: "us-west-2", zoneLabel: "us-west-2b", typeLabel: "t3.medium"}},
		{"no identity by the user's will", instance, KubeletSpec{Config: map[string]any{"providerID": nil}}, "",
			map[string]string{regionLabel: "us-west-2", zoneLabel: "us-west-2b", typeLabel: "t3.medium"}},
	} {
		if got := tt.spec.ProviderID(tt.node); got != tt.id {
			t.Errorf("%s: provider ID %q, wanted %q", tt.name, got, tt.id)
		}
		labels := tt.spec.NodeLabels(tt.node)
		if !maps.Equal(labels, tt.labels) {
			t.Errorf("%s: labels %v, wanted %v", tt.name, labels, tt.labels)
		}
		if own := OwnLabels(tt.node, labels); !maps.Equal(own, tt.spec.Labels) {
			t.Errorf("%s: of these the user's are %v, wanted %v", tt.name, own, tt.spec.Labels)
		}
	}
}

// TestIdentityRestartsNothing: a machine that becomes known as an instance, or gets another type, has the same files, but for
// those of the service that waits for EC2's events.
func TestIdentityRestartsNothing(t *testing.T) {
	machine := Workers(workerSpec(t))
	plain, instance := worker0, worker0
	plain.Zone, instance.Zone = "us-west-2b", "us-west-2b"
	instance.InstanceID, instance.InstanceType = "i-0123456789abcdef0", "t3.medium"
	before, after := must(t)(machine(plain)), must(t)(machine(instance))
	after.State.Units = slices.DeleteFunc(after.State.Units, func(u desired.Unit) bool { return u.Name == EC2EventsUnit })
	after.State.Packages = slices.DeleteFunc(after.State.Packages, func(p string) bool { return p == "python3" })
	after.State.Files = slices.DeleteFunc(after.State.Files, func(f desired.File) bool { return f.Path == ec2EventsPath || f.Path == unitPath(EC2EventsUnit) })
	same(t, "state of a machine", after.State, before.State)
	if args := foundOf(after).args(KubeletUnit).last("node-labels"); !strings.Contains(args, zoneLabel+"=us-west-2b") {
		t.Errorf("the kubelet registers with the labels %s", args)
	}
}

// TestReadIdentity: labels that say what EC2 says anyway are read as they are in the flags, without further flags.
func TestReadIdentity(t *testing.T) {
	spec := workerSpec(t)
	spec.Kubelet.Labels = map[string]string{regionLabel: "us-west-2", zoneLabel: "us-west-2b", "tier": "a"}
	node := worker0
	node.Zone, node.InstanceID, node.InstanceType = "us-west-2b", "i-0123456789abcdef0", "t3.medium"
	read, err := spec.Read(node, foundOf(must(t)(Workers(spec)(node))))
	if err != nil {
		t.Fatal(err)
	}
	if want := map[string]string{regionLabel: "us-west-2", "tier": "a"}; !maps.Equal(read.Kubelet.Labels, want) || len(read.Kubelet.Args["node-labels"]) > 0 {
		t.Errorf("labels %v, flags %v", read.Kubelet.Labels, read.Kubelet.Args)
	}
}
