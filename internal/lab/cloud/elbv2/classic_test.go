package elbv2

import (
	"net/url"
	"strings"
	"testing"
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
		if tt.code == "" && err != nil || tt.code != "" && (err == nil || !strings.Contains(err.Error(), tt.code)) {
			t.Errorf("%s with %q: %v, wanted %q", tt.action, tt.key, err, tt.code)
		}
	}
}
