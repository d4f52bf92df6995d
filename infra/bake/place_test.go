package bake

import (
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// TestBest: a subnet has free addresses, and its zone offers the type, if there is such a zone.
func TestBest(t *testing.T) {
	subnet := func(zone string, free int32) types.Subnet {
		return types.Subnet{AvailabilityZone: &zone, AvailableIpAddressCount: &free}
	}
	for _, tt := range []struct {
		name    string
		subnets []types.Subnet
		offers  []string
		want    string
	}{
		{"the first by its zone", []types.Subnet{subnet("b", 9), subnet("a", 9)}, []string{"a", "b"}, "a"},
		{"full", []types.Subnet{subnet("a", 0), subnet("b", 1)}, []string{"a", "b"}, "b"},
		{"without the type", []types.Subnet{subnet("a", 9), subnet("b", 9)}, []string{"b"}, "b"},
		{"the type nowhere", []types.Subnet{subnet("b", 9), subnet("a", 9)}, nil, "a"},
		{"all full", []types.Subnet{subnet("a", 0)}, []string{"a"}, ""},
		{"none", nil, []string{"a"}, ""},
	} {
		if got, ok := best(tt.subnets, tt.offers); sdk.ToString(got.AvailabilityZone) != tt.want || ok != (tt.want != "") {
			t.Errorf("%s: %+v, %t", tt.name, got, ok)
		}
	}
}
