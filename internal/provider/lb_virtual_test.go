package provider

import (
	"fmt"
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
		"no machine's":     {values{"virtual_ip": "224.0.0.18"}, false, "not an address that a machine can have"},
		"on a controller":  {values{"standbys": []any{host("lb-1", "10.240.0.10")}}, false, "the machine of the controller controller-0, which uses port 6443 itself"},
		"another port":     {values{"standbys": []any{host("lb-1", "10.240.0.10")}, "port": 7443}, false, ""},
		"former alone":     {values{"virtual_ip": nil, "standbys": nil, "former_virtual_ips": []any{"10.240.0.9"}}, false, "former_virtual_ips need virtual_ip"},
		"former a machine": {values{"former_virtual_ips": []any{"10.240.0.41"}}, false, "10.240.0.41 is the private_ip of lb-1"},
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

// TestVirtualIPChanges: a plan that takes the address from workers warns, and one that keeps it beside the new
// one does not. The certificates have both then.
func TestVirtualIPChanges(t *testing.T) {
	t.Parallel()
	c := newRoles(t)
	host := func(name, ip string) values {
		return values{"name": name, "address": ip, "private_ip": ip, "host_key": publicKey(t)}
	}
	before := values{"cluster": "demo", "host": host("lb-0", "10.240.0.40"), "standbys": []any{host("lb-1", "10.240.0.41")}, "virtual_ip": "10.240.0.9",
		"controllers": c.etcd["hosts"], "pki": c.etcd["pki"]}
	lb := c.applied("k8s_lb", before)
	for what, test := range map[string]struct {
		more values
		want []string
	}{
		"changed":  {values{"virtual_ip": "10.240.0.8"}, []string{"Workers cannot reach the API", "leave 10.240.0.9 at once", `former_virtual_ips = ["10.240.0.9"]`}},
		"gone":     {values{"virtual_ip": nil, "standbys": nil}, []string{"leave 10.240.0.9 at once"}},
		"kept":     {values{"virtual_ip": "10.240.0.8", "former_virtual_ips": []any{"10.240.0.9"}}, nil},
		"the same": {values{"virtual_router_id": 7}, nil},
	} {
		said := lb.plan(with(before, test.more))
		if len(said.errors) > 0 || (len(said.warnings) > 0) != (test.want != nil) {
			t.Fatalf("%s: %v %v", what, said.errors, said.warnings)
		}
		if test.want != nil {
			mention(t, said.warnings[0].Summary+said.warnings[0].Detail, test.want...)
		}
	}
	both := c.applied("k8s_lb", with(before, values{"virtual_ip": "10.240.0.8", "former_virtual_ips": []any{"10.240.0.9"}}))
	if ref := fmt.Sprint(both.get("ref").(values)["names"], both.get("ref").(values)["machines"]); ref != "[10.240.0.8 10.240.0.40 10.240.0.9] map[lb-0:10.240.0.40 lb-1:10.240.0.41]" {
		t.Errorf("names and machines %s", ref)
	}
}
