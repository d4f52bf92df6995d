package roles_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestVirtualIP checks the endpoints of a load balancer with a virtual address, and that every change is made in place.
func TestVirtualIP(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	host := func(name, ip string) providertest.Values {
		return providertest.Values{"name": name, "address": ip, "private_ip": ip, "host_key": providertest.PublicKey(t)}
	}
	alone := providertest.Values{"host": host("lb-0", "10.240.0.40"), "controllers": c.Etcd["hosts"], "pki": c.Etcd["pki"]}
	shared := providertest.With(alone, providertest.Values{"standbys": []any{host("lb-1", "10.240.0.41")}, "virtual_ip": "10.240.0.9"})
	lb := c.Applied("k8s_lb", shared)
	for name, want := range map[string]any{"endpoint": "https://10.240.0.9:6443", "private_endpoint": "https://10.240.0.9:6443", "public_ip": "10.240.0.9", "allocation_id": ""} {
		if got := lb.Get(name); got != want {
			t.Errorf("%s is %v, wanted %v", name, got, want)
		}
	}
	// A cluster that gets a virtual address keeps the name that its kubeconfigs have.
	if names := lb.Get("ref").(providertest.Values)["names"].([]any); len(names) != 2 || names[0] != "10.240.0.9" || names[1] != "10.240.0.40" {
		t.Errorf("names %v", names)
	}
	for _, file := range []string{"/etc/haproxy/virtual-address.conf", "/etc/haproxy/haproxy.cfg"} {
		// A line that only one of them has names it.
		if text, _ := lb.Files()[file].(string); text == "" || strings.HasPrefix(text, "[") {
			t.Errorf("no %s in %v", file, lb.Files())
		}
	}
	if ch := lb.Plan(shared); !lb.Empty(ch) {
		t.Errorf("the second plan is not empty: %s", lb.Differences(ch))
	}
	for what, test := range map[string]struct {
		more     providertest.Values
		replaces bool
		want     string
	}{
		"another address":  {providertest.Values{"virtual_ip": "10.240.0.8"}, false, ""},
		"no standby":       {providertest.Values{"standbys": nil}, false, ""},
		"no address":       {providertest.Values{"virtual_ip": nil, "standbys": nil}, false, ""},
		"standbys only":    {providertest.Values{"virtual_ip": nil}, false, "standbys need virtual_ip"},
		"a machine's":      {providertest.Values{"virtual_ip": "10.240.0.41"}, false, "10.240.0.41 is the private_ip of lb-1"},
		"no machine's":     {providertest.Values{"virtual_ip": "224.0.0.18"}, false, "not an address that a machine can have"},
		"on a controller":  {providertest.Values{"standbys": []any{host("lb-1", "10.240.0.10")}}, false, "the machine of the controller controller-0, which uses port 6443 itself"},
		"another port":     {providertest.Values{"standbys": []any{host("lb-1", "10.240.0.10")}, "port": 7443}, false, ""},
		"former alone":     {providertest.Values{"virtual_ip": nil, "standbys": nil, "former_virtual_ips": []any{"10.240.0.9"}}, false, "former_virtual_ips need virtual_ip"},
		"former a machine": {providertest.Values{"former_virtual_ips": []any{"10.240.0.41"}}, false, "10.240.0.41 is the private_ip of lb-1"},
		"an EC2 instance":  {providertest.Values{"host": providertest.With(host("lb-0", "10.240.0.40"), providertest.Values{"instance_id": "i-1"})}, false, "does not follow a virtual address"},
		"no router number": {providertest.Values{"virtual_router_id": 256}, false, "between 1 and 255"},
	} {
		ch := lb.Plan(providertest.With(shared, test.more))
		if got := ch.Failure(); test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, wanted %q", what, got, test.want)
		}
		if replaces := len(ch.Replace) > 0; test.want == "" && replaces != test.replaces {
			t.Errorf("%s replaces: %t", what, replaces)
		}
	}
	before := c.Applied("k8s_lb", alone)
	if got := before.Get("endpoint"); got != "https://10.240.0.40:6443" && got != providertest.Unknown {
		t.Errorf("endpoint without a virtual address: %v", got)
	}
}

// TestVirtualIPChanges: a plan that takes the address from workers warns, and one that keeps it beside the new
// one does not. The certificates have both then.
func TestVirtualIPChanges(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	host := func(name, ip string) providertest.Values {
		return providertest.Values{"name": name, "address": ip, "private_ip": ip, "host_key": providertest.PublicKey(t)}
	}
	before := providertest.Values{"host": host("lb-0", "10.240.0.40"), "standbys": []any{host("lb-1", "10.240.0.41")}, "virtual_ip": "10.240.0.9",
		"controllers": c.Etcd["hosts"], "pki": c.Etcd["pki"]}
	lb := c.Applied("k8s_lb", before)
	for what, test := range map[string]struct {
		more providertest.Values
		want []string
	}{
		"changed":  {providertest.Values{"virtual_ip": "10.240.0.8"}, []string{"Workers cannot reach the API", "leave 10.240.0.9 at once", `former_virtual_ips = ["10.240.0.9"]`}},
		"gone":     {providertest.Values{"virtual_ip": nil, "standbys": nil}, []string{"leave 10.240.0.9 at once"}},
		"kept":     {providertest.Values{"virtual_ip": "10.240.0.8", "former_virtual_ips": []any{"10.240.0.9"}}, nil},
		"the same": {providertest.Values{"virtual_router_id": 7}, nil},
	} {
		said := lb.Plan(providertest.With(before, test.more))
		if len(said.Errors) > 0 || (len(said.Warnings) > 0) != (test.want != nil) {
			t.Fatalf("%s: %v %v", what, said.Errors, said.Warnings)
		}
		if test.want != nil {
			providertest.Mention(t, said.Warnings[0].Summary+said.Warnings[0].Detail, test.want...)
		}
	}
	both := c.Applied("k8s_lb", providertest.With(before, providertest.Values{"virtual_ip": "10.240.0.8", "former_virtual_ips": []any{"10.240.0.9"}}))
	if ref := fmt.Sprint(both.Get("ref").(providertest.Values)["names"], both.Get("ref").(providertest.Values)["machines"]); ref != "[10.240.0.8 10.240.0.40 10.240.0.9] map[lb-0:10.240.0.40 lb-1:10.240.0.41]" {
		t.Errorf("names and machines %s", ref)
	}
}
