package need

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
)

// plan is a plan of testdata that a test changes. private.json is what Terraform shows of a cluster of six t3.small in
// private subnets, without the values that nothing here reads.
type plan struct {
	t   *testing.T
	doc map[string]any
}

func private(t *testing.T) *plan {
	t.Helper()
	raw, err := os.ReadFile("testdata/private.json")
	if err != nil {
		t.Fatal(err)
	}
	p := &plan{t: t}
	if err := json.Unmarshal(raw, &p.doc); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *plan) changes() (all []map[string]any) {
	list, _ := p.doc["resource_changes"].([]any)
	for _, c := range list {
		change, _ := c.(map[string]any)
		all = append(all, change)
	}
	return all
}

// edit changes the changes of a type of resource.
func (p *plan) edit(kind string, f func(change, after map[string]any)) *plan {
	for _, c := range p.changes() {
		if c["type"] == kind || kind == "" {
			change, _ := c["change"].(map[string]any)
			after, _ := change["after"].(map[string]any)
			f(change, after)
		}
	}
	return p
}

// times plans the cluster n times, under other names.
func (p *plan) times(n int) *plan {
	raw, err := json.Marshal(p.doc["resource_changes"])
	if err != nil {
		p.t.Fatal(err)
	}
	var all []any
	for i := range n {
		var one []any
		if err := json.Unmarshal([]byte(strings.ReplaceAll(string(raw), `"demo"`, fmt.Sprintf(`"demo-%d"`, i))), &one); err != nil {
			p.t.Fatal(err)
		}
		all = append(all, one...)
	}
	p.doc["resource_changes"] = all
	return p
}

func (p *plan) read() Plan {
	p.t.Helper()
	raw, err := json.Marshal(p.doc)
	if err != nil {
		p.t.Fatal(err)
	}
	read, err := Read(raw)
	if err != nil {
		p.t.Fatal(err)
	}
	return read
}

var vcpus = map[string]int{"t3.small": 2, "m5.large": 2, "trn1.2xlarge": 8}

// needs returns what a plan needs, without what it needs none of.
func (p Plan) needs() map[Kind]int {
	out := maps.Clone(p.Counts)
	out[VCPUs], out[SpotVCPUs], out[NATGateways] = p.VCPUs(false, vcpus), p.VCPUs(true, vcpus), p.NAT[""]
	for _, n := range p.NAT {
		out[NATGateways] = max(out[NATGateways], n)
	}
	for _, n := range p.Routes {
		out[Routes] = max(out[Routes], n)
	}
	maps.DeleteFunc(out, func(_ Kind, n int) bool { return n == 0 })
	return out
}

func (p *plan) wants(want map[Kind]int) {
	p.t.Helper()
	got := p.read().needs()
	for kind, q := range Quotas {
		if got[Kind(kind)] != want[Kind(kind)] {
			p.t.Errorf("%s (%s): %d, want %d", q.Name, q.Code, got[Kind(kind)], want[Kind(kind)])
		}
	}
}

// class is what thirty clusters of six t3.small need.
var class = map[Kind]int{
	VCPUs: 360, VPCs: 30, InternetGateways: 30, Addresses: 30, NATGateways: 30, ConnectEndpoints: 30, SecurityGroups: 210,
	Interfaces:    180 + 30 + 30 + 30, // of machines, NAT gateways, endpoints and load balancers
	LoadBalancers: 30, TargetGroups: 30, GP3: 3600, Routes: 4, Parameters: 300,
}

// TestClass adds up thirty clusters, and takes them away again.
func TestClass(t *testing.T) {
	p := private(t).times(30)
	p.wants(class)
	if got := p.read(); got.Region != "eu-central-1" || len(got.Types()) != 1 {
		t.Errorf("region %q, types %q", got.Region, got.Types())
	}

	again := private(t).times(30).edit("", func(change, after map[string]any) {
		change["actions"], change["before"], change["after_unknown"] = []string{"no-op"}, after, map[string]any{}
	})
	again.wants(nil)

	gone := private(t).times(30).edit("", func(change, after map[string]any) {
		if after["vpc_cidr"] != nil {
			after["vpc_id"] = "vpc-" + fmt.Sprint(after["cluster"])
		}
		change["actions"], change["before"], change["after"], change["after_unknown"] = []string{"delete"}, after, nil, map[string]any{}
	})
	less := map[Kind]int{Routes: 0, VPCs: 0, InternetGateways: 0, SecurityGroups: -180}
	for kind, n := range class {
		if _, other := less[kind]; !other {
			less[kind] = -n
		}
	}
	gone.wants(less)
	if left := gone.read().Leaves; len(left) != 30 || left[7] != (VPC{"vpc-demo-7", "demo-7"}) {
		t.Errorf("VPCs that may be deleted: %v", left)
	}
}

// TestChanges: what is only changed counts as far as it grows.
func TestChanges(t *testing.T) {
	one := map[Kind]int{}
	for kind, n := range class {
		one[kind] = n / 30
	}
	one[Routes] = 4
	with := func(change map[Kind]int) map[Kind]int {
		out := maps.Clone(one)
		maps.Copy(out, change)
		return out
	}
	to := func(key string, value any) func(_, after map[string]any) {
		return func(_, after map[string]any) { after[key] = value }
	}
	// changed plans the network, the machines and so on of an existing cluster again.
	changed := func(kind string, f func(_, after map[string]any)) *plan {
		p := private(t).edit("", func(change, after map[string]any) {
			change["actions"], change["before"], change["after_unknown"] = []string{"update"}, maps.Clone(after), map[string]any{}
		})
		return p.edit(kind, f)
	}
	for name, c := range map[string]struct {
		plan *plan
		want map[Kind]int
	}{
		"one cluster":       {private(t), one},
		"larger volumes":    {changed("k8s_machine", to("root_volume_size", 30)), map[Kind]int{GP3: 60}},
		"other volumes":     {changed("k8s_machine", to("root_volume_type", "io2")), map[Kind]int{GP3: -120}},
		"stopped":           {changed("k8s_machine", to("power_state", "stopped")), map[Kind]int{VCPUs: -12}},
		"made stopped":      {private(t).edit("k8s_machine", to("power_state", "stopped")), with(map[Kind]int{VCPUs: 0})},
		"Spot":              {private(t).edit("k8s_machine", to("spot", map[string]any{"max_price": nil})), with(map[Kind]int{VCPUs: 0, SpotVCPUs: 12})},
		"another family":    {private(t).edit("k8s_machine", to("instance_type", "trn1.2xlarge")), with(map[Kind]int{VCPUs: 0})},
		"a public endpoint": {changed("k8s_nlb", to("public", true)), map[Kind]int{LoadBalancers: 1, TargetGroups: 1, Interfaces: 1}},
		"an endpoint":       {private(t).edit("k8s_network", to("instance_connect_endpoint", false)), with(map[Kind]int{ConnectEndpoints: 0, SecurityGroups: 6, Interfaces: 8})},
		"zones by name":     {private(t).edit("k8s_network", to("availability_zones", []string{"a"})), one},
		"a gateway a zone": {changed("k8s_network", func(_, after map[string]any) {
			after["nat_gateways"], after["availability_zones"] = "per_zone", []any{nil, "b", "c"}
		}), map[Kind]int{Addresses: 2, Interfaces: 2, NATGateways: 1}},
		"zones of an NLB":    {private(t).edit("k8s_nlb", to("availability_zones", []string{"a", "b", "c"})), with(map[Kind]int{Interfaces: 11})},
		"keys in the state":  {private(t).edit("k8s_pki", to("key_store", "state")), with(map[Kind]int{Parameters: 0})},
		"an adopted VPC":     {private(t).edit("k8s_network", func(change, after map[string]any) { adopt(after, "vpc-1"); change["after_unknown"] = nil }), with(map[Kind]int{VPCs: 0, InternetGateways: 0, SecurityGroups: 6, Routes: 3})},
		"a VPC of the plan":  {private(t).edit("k8s_network", func(_, after map[string]any) { adopt(after, nil) }), with(map[Kind]int{VPCs: 0, InternetGateways: 0, SecurityGroups: 6, Routes: 3})},
		"another generation": {changed("k8s_pki", to("generations", map[string]any{"kubernetes_ca": []int{1, 2}})), map[Kind]int{Parameters: 3}}, // a key, a certificate, and the list
		"forgotten": {private(t).edit("", func(change, after map[string]any) {
			change["actions"], change["before"], change["after"] = []string{"forget"}, after, nil
		}), nil},
		"one after the other": {private(t).edit("k8s_machine", func(change, after map[string]any) {
			change["actions"], change["before"] = []string{"delete", "create"}, after
		}), with(map[Kind]int{VCPUs: 0, GP3: 0, Interfaces: 3, Routes: 1})},
		"one beside the other": {private(t).edit("k8s_machine", func(change, after map[string]any) {
			change["actions"], change["before"] = []string{"create", "delete"}, after
		}), one},
	} {
		t.Run(name, func(t *testing.T) {
			c.plan.t = t
			c.plan.wants(c.want)
		})
	}
}

// adopt gives a network a VPC that is not its own.
func adopt(network map[string]any, id any) {
	network["vpc_id"] = id
	delete(network, "vpc_cidr")
}

// TestOther counts a load balancer's address, data volumes, and the machines of which images are made.
func TestOther(t *testing.T) {
	image := map[string]any{"cluster": "demo", "instance_type": "t3.small", "root_volume_size": 8, "network": nil}
	p := private(t)
	p.doc["resource_changes"] = []map[string]any{
		{"type": "k8s_lb", "mode": "managed", "change": map[string]any{"actions": []string{"create"}, "after": map[string]any{"public": true}, "after_unknown": map[string]any{"allocation_id": true}}},
		{"type": "k8s_lb", "mode": "managed", "change": map[string]any{"actions": []string{"create"}, "after": map[string]any{"public": false}}},
		{"type": "k8s_volume", "mode": "managed", "change": map[string]any{"actions": []string{"create"}, "after": map[string]any{"type": "gp3", "size": 100}}},
		{"type": "k8s_volume", "mode": "managed", "change": map[string]any{"actions": []string{"create"}, "after": map[string]any{"type": "io2", "size": 100}}},
		{"type": "k8s_image", "mode": "managed", "change": map[string]any{"actions": []string{"create"}, "after": image}},
		{"type": "k8s_image", "mode": "managed", "change": map[string]any{"actions": []string{"create", "delete"}, "before": image, "after": image}},
		{"type": "k8s_image", "mode": "managed", "change": map[string]any{"actions": []string{"update"}, "before": image, "after": image}},
		{"type": "k8s_image", "mode": "managed", "change": map[string]any{"actions": []string{"delete"}, "before": image, "after": nil}},
		{"type": "aws_vpc", "mode": "managed", "change": map[string]any{"actions": []string{"create"}, "after": map[string]any{"size": "other"}}},
		{"type": "k8s_cluster_status", "mode": "data", "change": map[string]any{"actions": []string{"read"}, "after": map[string]any{}}},
	}
	p.wants(map[Kind]int{Addresses: 1, GP3: 116, VCPUs: 4, Interfaces: 2})
}

// TestProvider finds the region and the arguments that choose credentials in the provider's configuration.
func TestProvider(t *testing.T) {
	for arguments, want := range map[string]string{
		`"region":{"constant_value":"eu-west-1"}`:                                                                  "eu-west-1 []",
		`"region":{"references":["var.set"]}`:                                                                      "value []",
		`"region":{"references":["local.a"]}`:                                                                      " []",
		`"profile":{"references":["var.null"]},"access_key":{},"token":{"constant_value":null}`:                    " []",
		`"profile":{"references":["var.set"]}`:                                                                     " [profile]",
		`"access_key":{"constant_value":"a"},"secret_key":{"references":["var.a.b","var.a"]}`:                      " [access_key secret_key]",
		`"assume_role":{"references":["local.a"]}`:                                                                 " [assume_role]",
		`"assume_role":{"role_arn":{"constant_value":"a"}}`:                                                        " [assume_role]",
		`"assume_role_with_web_identity":[{}]`:                                                                     " [assume_role_with_web_identity]",
		`"profile":{"constant_value":"a"}},"alias":"other","x":{`:                                                  " []",
		`"shared_config_files":{"constant_value":["a"]},"shared_credentials_files":{"references":["path.module"]}`: " [shared_config_files shared_credentials_files]",
	} {
		p, err := Read([]byte(`{"format_version":"1.2","planned_values":{},"variables":{"set":{"value":"value"},"null":{"value":null}},"configuration":{"provider_config":{"k8s":{"name":"k8s","expressions":{` + arguments + `}}}}}`))
		if got := fmt.Sprintf("%s %v", p.Region, p.Own); err != nil || got != want {
			t.Errorf("%s: %q, want %q, %v", arguments, got, want, err)
		}
	}
}

// TestNoPlan: every other input gets an error that says what to give.
func TestNoPlan(t *testing.T) {
	for text, want := range map[string]string{
		"PK\x03\x04...":                        "this is the plan file itself: give the output of `terraform show -json PLANFILE`",
		"No changes. Your infrastructure":      "this is not the output of `terraform show -json PLANFILE`: invalid character",
		"":                                     "this is not the output of `terraform show -json PLANFILE`: unexpected end",
		"[]":                                   "this is not the output of `terraform show -json PLANFILE`: json: cannot unmarshal",
		"{}":                                   "it has no format_version",
		`{"format_version":"1.0","values":{}}`: "this is a state, and no plan",
		`{"format_version":"1.0"}`:             `its format_version is "1.0"`,
		`{"format_version":"2.0","planned_values":{}}`:                `its format_version is "2.0", and a plan of Terraform or OpenTofu has 1.x`,
		`{"format_version":"1.2","planned_values":{},"errored":true}`: "this plan has failed",
		`{"format_version":"1.2","planned_values":{},"resource_changes":[{"address":"k8s_volume.a","mode":"managed","type":"k8s_volume","change":{"actions":["create"],"after":{"size":"x"}}}]}`: "k8s_volume.a: json: cannot unmarshal string",
	} {
		if _, err := Read([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if p, err := Read([]byte(`{"format_version":"1.2","planned_values":{}}`)); err != nil || len(p.needs()) > 0 {
		t.Errorf("a plan without resources: %v, %v", p, err)
	}
}
