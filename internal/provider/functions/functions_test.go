package functions_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestFunctions calls each function with arguments that are right and wrong. Their rules are tested in
// infra/addressplan and infra/version.
func TestFunctions(t *testing.T) {
	c := providertest.Open(t, provider.New("test"))
	const nodes, pods = "10.240.0.0/24", "10.200.0.0/16"
	for _, tt := range []struct {
		name     string
		args     []any
		want     any
		argument int64 // at fault; -1 for none in particular
		err      string
	}{
		{name: "machine_address", args: []any{nodes, "controller", 2}, want: "10.240.0.12"},
		{name: "machine_address", args: []any{"10.240.0.0", "controller", 2}, argument: 0, err: "want a network such as 10.240.0.0/24"},
		{name: "machine_address", args: []any{"2001:db8::/64", "controller", 2}, argument: 0, err: "want an IPv4 network"},
		{name: "machine_address", args: []any{nodes, "master", 2}, argument: 1, err: `role "master": want lb, controller, etcd, worker`},
		{name: "machine_address", args: []any{nodes, "lb", 6}, argument: 2, err: "0 to 5"},
		{name: "pod_cidr", args: []any{pods, 255}, want: "10.200.255.0/24"},
		{name: "pod_cidr", args: []any{pods, 256}, argument: 1, err: "0 to 255"},
		{name: "pod_cidr", args: []any{"10.200.0.1/16", 0}, argument: 0, err: "the network is 10.200.0.0/16"},
		{name: "worker_addresses", args: []any{[]any{nodes}, pods, []any{"red-0", nil, "", "blue-0"}}, want: map[string]any{
			"red-0":  map[string]any{"private_ip": "10.240.0.20", "pod_cidr": "10.200.0.0/24"},
			"blue-0": map[string]any{"private_ip": "10.240.0.23", "pod_cidr": "10.200.3.0/24"},
		}},
		{name: "worker_addresses", args: []any{[]any{nodes, "10.240.1.0/24"}, pods, []any{"a", "b", "c"}}, want: map[string]any{
			"a": map[string]any{"private_ip": "10.240.0.20", "pod_cidr": "10.200.0.0/24"},
			"b": map[string]any{"private_ip": "10.240.1.20", "pod_cidr": "10.200.1.0/24"},
			"c": map[string]any{"private_ip": "10.240.0.21", "pod_cidr": "10.200.2.0/24"},
		}},
		{name: "worker_addresses", args: []any{[]any{}, pods, []any{"a"}}, argument: 0, err: "no subnet is given"},
		{name: "worker_addresses", args: []any{[]any{nodes, "10.240.1.0"}, pods, []any{"a"}}, argument: 0, err: "10.240.1.0: want a network"},
		{name: "worker_addresses", args: []any{[]any{nodes}, pods, []any{}}, want: map[string]any{}},
		{name: "worker_addresses", args: []any{[]any{nodes}, pods, []any{"a", "b", "a"}}, argument: 2, err: "a is there twice"},
		{name: "worker_addresses", args: []any{[]any{nodes}, "10.200.0.0/23", []any{"a", "b", "c"}}, argument: 2, err: "c: index 2: 10.200.0.0/23 has networks for 2 nodes"},
		{name: "network_problems", args: []any{map[string]any{"nodes": []any{nodes}, "pods": []any{pods}}}, want: []any{}},
		{name: "network_problems", args: []any{map[string]any{"office": []any{"10.0.0.0/8"}, "pods": []any{pods}}}, want: []any{"office 10.0.0.0/8 overlaps pods 10.200.0.0/16."}},
		{name: "network_problems", args: []any{map[string]any{"office": []any{"10.0.0.0"}}}, argument: 0, err: "office: 10.0.0.0: want a network"},
		{name: "version_problems", args: []any{map[string]any{"control_plane": "1.36.4", "workers": nil}}, want: []any{}},
		{name: "version_problems", args: []any{map[string]any{"control_plane": "1.36.4", "workers": "1.37.0"}}, want: []any{
			"workers: kubelet 1.37.0 is newer than the API server 1.36.4: upgrade the control plane first."}},
		{name: "version_problems", args: []any{map[string]any{"kubernetes": "1.36.4"}}, argument: 0, err: `"kubernetes": want control_plane, workers`},
		{name: "version_problems", args: []any{map[string]any{"etcd": "3.6"}}, argument: 0, err: "etcd: "},
	} {
		got, refused := c.Call(tt.name, tt.args...)
		switch {
		case tt.err == "" && refused != nil:
			t.Errorf("%s%v: %s", tt.name, tt.args, refused.Text)
		case tt.err == "" && !reflect.DeepEqual(got, tt.want):
			t.Errorf("%s%v: %v, want %v", tt.name, tt.args, got, tt.want)
		case tt.err != "" && (refused == nil || !strings.Contains(refused.Text, tt.err) || refused.FunctionArgument == nil || *refused.FunctionArgument != tt.argument):
			t.Errorf("%s%v: %+v, want an error of argument %d with %q", tt.name, tt.args, refused, tt.argument, tt.err)
		}
	}
}
