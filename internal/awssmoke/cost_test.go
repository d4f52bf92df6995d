package main

import (
	"math"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/quotas/need"
)

const planText = `{"format_version": "1.2", "planned_values": {"root_module": {"resources": [
	{"type": "k8s_network", "values": {}},
	{"type": "k8s_machine", "values": {"associate_public_ip_address": true}},
	{"type": "k8s_machine", "values": {"associate_public_ip_address": false}},
	{"type": "k8s_machine", "values": {}},
	{"type": "k8s_lb", "values": {"public": true}},
	{"type": "k8s_etcd_cluster", "values": {"version": "3.6.16"}},
	{"type": "k8s_control_plane", "values": {"version": "1.36.4"}}
]}}, "resource_changes": [
	{"type": "k8s_network", "mode": "managed", "change": {"actions": ["create"], "after": {"cluster": "a", "vpc_cidr": "10.240.0.0/16"}, "after_unknown": {"vpc_id": true}}},
	{"type": "k8s_machine", "mode": "managed", "change": {"actions": ["create"], "after": {"instance_type": "t3.medium", "power_state": "running", "root_volume_type": "gp3", "root_volume_size": 20}}},
	{"type": "k8s_machine", "mode": "managed", "change": {"actions": ["create"], "after": {"instance_type": "t3.medium", "power_state": "running", "root_volume_type": "gp3", "root_volume_size": 30}}},
	{"type": "k8s_machine", "mode": "managed", "change": {"actions": ["create"], "after": {"instance_type": "t3.medium", "power_state": "running", "root_volume_type": "gp3"}}},
	{"type": "k8s_lb", "mode": "managed", "change": {"actions": ["create"], "after": {"public": true}, "after_unknown": {"allocation_id": true}}}
]}`

func TestCost(t *testing.T) {
	p, err := readPlan([]byte(planText))
	if err != nil {
		t.Fatal(err)
	}
	if p.instances()["t3.medium"] != 3 || p.gib() != 70 || p.addresses != 2 || p.needs.Counts[need.Addresses] != 1 || p.needs.Counts[need.VPCs] != 1 || p.kubernetes != "1.36.4" || p.etcd != "3.6.16" {
		t.Errorf("%+v", p)
	}
	usd, ok := p.hourly("eu-central-1")
	if want := 3*0.048 + 70*0.0952/730 + 2*0.005; !ok || math.Abs(usd-want) > 1e-9 {
		t.Errorf("%v, want %v", usd, want)
	}
	for _, tt := range []struct {
		region string
		p      planned
		want   []string
	}{
		{"eu-central-1", p, []string{"about $0.16 an hour in eu-central-1", "3 t3.medium, 70 GiB of gp3, 2 public IPv4 addresses", pricesNoted, priceList}},
		{"mars-north-1", p, []string{"unknown in mars-north-1", "3 t3.medium", priceList}},
		{"us-east-1", planned{needs: need.Plan{Machines: map[need.Machine]int{{Type: "x9.huge"}: 1}}}, []string{"unknown in us-east-1", "1 x9.huge"}},
	} {
		line := costLine(tt.p, tt.region)
		for _, want := range tt.want {
			if !strings.Contains(line, want) {
				t.Errorf("%q is missing in %q", want, line)
			}
		}
	}
}

func TestPlanWithoutMachines(t *testing.T) {
	for _, text := range []string{`{}`, `no JSON`} {
		if _, err := readPlan([]byte(text)); err == nil {
			t.Errorf("%s: no error", text)
		}
	}
}
