package provider

import (
	"strings"
	"testing"
)

// TestVirtualIP checks the endpoints of a load balancer with a virtual address, and that every change is made in place.
func TestVirtualIP(t *testing.T) {
	t.Parallel()
	c := newRoles(t)
	host := func(name, ip string) values {
		return values{"name": name, "address": ip, "private_ip": ip, "host_key": publicKey(t)}
	}
	alone := values{"cluster": "demo", "host": host("lb-0", "10.240.0.40"), "controllers": c.etcd["hosts"], "pki": c.etcd["pki"]}
	shared := with(alone, values{"standbys": []any{host("lb-1", "10.240.0.41")}, "virtual_ip": "10.240.0.9"})
	lb := c.applied("k8s_lb", shared)
	for name, want := range map[string]any{"endpoint": "https://10.240.0.9:6443", "private_endpoint": "https://10.240.0.9:6443", "public_ip": "10.240.0.9", "allocation_id": ""} {
		if got := lb.get(name); got != want {
			t.Errorf("%s is %v, wanted %v", name, got, want)
		}
	}
	// A cluster that gets a virtual address keeps the name that its kubeconfigs have.
	if names := lb.get("ref").(values)["names"].([]any); len(names) != 2 || names[0] != "10.240.0.9" || names[1] != "10.240.0.40" {
		t.Errorf("names %v", names)
	}
	for _, file := range []string{"lb-0:/etc/haproxy/virtual-address.conf", "lb-1:/etc/haproxy/virtual-address.conf", "lb-1:/etc/haproxy/haproxy.cfg"} {
		if lb.files()[file] == nil {
			t.Errorf("no %s in %v", file, lb.files())
		}
	}
	if ch := lb.plan(shared); !lb.empty(ch) {
		t.Errorf("the second plan is not empty: %s", lb.differences(ch))
	}
	for what, test := range map[string]struct {
		more     values
		replaces bool
		want     string
	}{
		"another address":  {values{"virtual_ip": "10.240.0.8"}, false, ""},
		"no standby":       {values{"standbys": nil}, false, ""},
		"no address":       {values{"virtual_ip": nil, "standbys": nil}, false, ""},
		"standbys only":    {values{"virtual_ip": nil}, false, "standbys need virtual_ip"},
		"a machine's":      {values{"virtual_ip": "10.240.0.41"}, false, "10.240.0.41 is the private_ip of lb-1"},
		"an EC2 instance":  {values{"host": with(host("lb-0", "10.240.0.40"), values{"instance_id": "i-1"})}, false, "does not follow a virtual address"},
		"no router number": {values{"virtual_router_id": 256}, false, "between 1 and 255"},
	} {
		ch := lb.plan(with(shared, test.more))
		if got := ch.failure(); test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, wanted %q", what, got, test.want)
		}
		if replaces := len(ch.replace) > 0; test.want == "" && replaces != test.replaces {
			t.Errorf("%s replaces: %t", what, replaces)
		}
	}
	before := c.applied("k8s_lb", alone)
	if got := before.get("endpoint"); got != "https://10.240.0.40:6443" && got != unknown {
		t.Errorf("endpoint without a virtual address: %v", got)
	}
}
