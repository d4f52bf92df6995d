package elbv2

import (
	"errors"
	"net/url"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

func TestServeClassic(t *testing.T) {
	for _, tt := range []struct{ action, key, code string }{
		{"DescribeLoadBalancers", "Marker", ""},
		{"DescribeLoadBalancers", "Wrong", "ValidationError"},
		{"DescribeLoadBalancers", "LoadBalancerNames.member.1", "LoadBalancerNotFound"},
		{"CreateLoadBalancer", "LoadBalancerName", "TooManyLoadBalancers"},
		{"DeleteLoadBalancer", "LoadBalancerName", ""},
		{"CreateListener", "LoadBalancerName", "InvalidAction"},
	} {
		_, err := ServeClassic(tt.action, url.Values{tt.key: {"a"}})
		var refused *wire.Error
		if errors.As(err, &refused); tt.code == "" && err != nil || tt.code != "" && (refused == nil || refused.Code != tt.code) {
			t.Errorf("%s with %q: %v, wanted %q", tt.action, tt.key, err, tt.code)
		}
	}
}
