package lab

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/host"
)

func TestWriteStatus(t *testing.T) {
	now := time.Date(2025, 1, 2, 3, 4, 5, 0, time.UTC)
	s := settings{Region: "us-east-1", APIPort: 4566, Artifacts: netip.MustParseAddr("203.0.113.62"), Operator: netip.MustParseAddr("203.0.113.1"), Slice: netip.MustParsePrefix("203.0.113.0/26"), SecretAccessKey: "hush", Format: format}
	l := Lab{dir: t.TempDir()}
	if err := l.writeSettings(s); err != nil {
		t.Fatal(err)
	}
	endpoints, err := l.Endpoints()
	if err != nil {
		t.Fatal(err)
	}
	o := cloud.Overview{Parameters: []string{"/k8s/demo/pki/ca"}, Buckets: []string{"backups"},
		LoadBalancers: []ec2.NamedOverview{{ID: "arn:1", Name: "demo", Detail: "active, internal", User: "vpc-1"}},
		TargetGroups:  []ec2.NamedOverview{{ID: "arn:2", Name: "demo-api", Detail: "i-1 healthy", User: "vpc-1"}}, Overview: ec2.Overview{
			Instances: []ec2.InstanceOverview{
				{ID: "i-2", Name: "worker-0", State: "stopped", Type: "t3.medium", VPC: "vpc-1", PrivateIP: "10.240.0.20"},
				{ID: "i-1", Name: "controller-0", State: "running", Type: "t3.medium", VPC: "vpc-1", PrivateIP: "10.240.0.10", PublicIP: "203.0.113.4", Launched: now.Add(-90 * time.Second)},
			},
			VPCs:        []ec2.NamedOverview{{ID: "vpc-1", Name: "demo", Detail: "10.240.0.0/16"}},
			Subnets:     []ec2.NamedOverview{{ID: "subnet-1", User: "vpc-1"}},
			NATGateways: []ec2.NamedOverview{{ID: "nat-1", Name: "demo-a", Detail: "available in us-east-1a", User: "subnet-1"}},
			Addresses:   []ec2.NamedOverview{{ID: "eipalloc-1", Detail: "203.0.113.4", User: "i-1"}},
		}}
	var got strings.Builder
	status := Status{
		Dir: "/var/lib/k8s-lab/default", PID: 7, Started: now.Add(-time.Hour), Endpoints: endpoints, Account: o,
		Faults: []map[string]any{{"kind": "capacity", "count": 2}},
		Host:   host.Changes{Settings: []host.Setting{{Path: "/proc/sys/fs/limit", Before: 128, Now: 8192}}, Controllers: []host.Controller{{Path: "/sys/fs/cgroup/cgroup.subtree_control", Name: "hugetlb"}}, Modules: []string{"overlay"}},
	}
	if err := status.Write(&got, now); err != nil {
		t.Fatal(err)
	}
	want := `Local EC2 in /var/lib/k8s-lab/default, up 1h0m0s (pid 7)
  API        http://127.0.0.1:4566  us-east-1
  artifacts  http://203.0.113.62:8080
  images     http://203.0.113.62:5000
  network    203.0.113.0/26  operator 203.0.113.1

Instances
  NAME          ID   STATE    TYPE       PRIVATE IP   PUBLIC IP    UPTIME
  controller-0  i-1  running  t3.medium  10.240.0.10  203.0.113.4  1m30s
  worker-0      i-2  stopped  t3.medium  10.240.0.20  -            -

VPCs
  NAME  ID     CIDR           SUBNETS  GROUPS  INSTANCES
  demo  vpc-1  10.240.0.0/16  1        0       2

NAT gateways
  NAME    ID     STATE                    SUBNET
  demo-a  nat-1  available in us-east-1a  subnet-1

Load balancers
  NAME  STATE             VPC
  demo  active, internal  vpc-1

Target groups
  NAME      TARGETS
  demo-api  i-1 healthy

Elastic IPs
  NAME  ADDRESS      ID          USED BY
  -     203.0.113.4  eipalloc-1  i-1

Parameters: 1

Buckets
  backups

Faults
  capacity count=2

Changed on this host
  /proc/sys/fs/limit                     8192, was 128  put back when the last lab goes down
  /sys/fs/cgroup/cgroup.subtree_control  +hugetlb       disabled when the last lab goes down
  module overlay                         loaded         stays until the host reboots
`
	if got.String() != want {
		t.Errorf("got\n%s\nwant\n%s", got.String(), want)
	}
}

// TestStatusJSON pins the keys that programs read.
func TestStatusJSON(t *testing.T) {
	status := Status{
		Account: cloud.Overview{Overview: ec2.Overview{Instances: []ec2.InstanceOverview{{ID: "i-1"}}, VPCs: []ec2.NamedOverview{{ID: "vpc-1"}}}},
		Host:    host.Changes{Settings: []host.Setting{{}}},
	}
	raw, err := json.Marshal(status)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		"state_dir", "pid", "started", "endpoints", "api", "artifacts", "images", "network", "operator", "account", "region", "instances", "id", "name",
		"state", "type", "vpc", "zone", "private_ip", "launched", "vpcs", "subnets", "internet_gateways", "nat_gateways", "instance_connect_endpoints", "load_balancers", "target_groups", "route_tables", "security_groups", "network_interfaces",
		"volumes", "addresses", "key_pairs", "parameters", "total", "faults", "host", "labs", "settings", "path", "before", "now", "modules",
	} {
		if !strings.Contains(string(raw), `"`+key+`":`) {
			t.Errorf("no key %q in %s", key, raw)
		}
	}
}

func TestHostSettings(t *testing.T) {
	kubelet, _, err := hostSettings()
	if err != nil {
		t.Fatal(err)
	}
	if kubelet["evictionHard"] == nil {
		t.Errorf("the kubelet may evict for the host's disk: %v", kubelet)
	}
	if (kubelet["failCgroupV1"] == false) != (kubelet["cgroupDriver"] == "cgroupfs") {
		t.Errorf("control groups: %v", kubelet)
	}
}

// TestKubeProxyConfig checks that kube-proxy understands the setting and changes no limit.
func TestKubeProxyConfig(t *testing.T) {
	var config struct {
		Conntrack struct{ MaxPerCore, Min *int }
	}
	raw, err := json.Marshal(kubeProxyConfig())
	if err == nil {
		err = json.Unmarshal(raw, &config)
	}
	if err != nil {
		t.Fatal(err)
	}
	if c := config.Conntrack; c.MaxPerCore == nil || c.Min == nil || *c.MaxPerCore != 0 || *c.Min != 0 {
		t.Errorf("kube-proxy may set limits that no container may: %s", raw)
	}
}

func TestRegion(t *testing.T) {
	for _, tt := range []struct{ is, wanted, becomes, problem string }{
		{"", "", DefaultRegion, ""},
		{"", "eu-central-1", "eu-central-1", ""},
		{"eu-central-1", "", "eu-central-1", ""},
		{"eu-central-1", "eu-central-1", "eu-central-1", ""},
		{"eu-central-1", "us-east-1", "eu-central-1", "its region is eu-central-1 and cannot become us-east-1"},
		{"", "eu-central-1a", "", `"eu-central-1a" is not the name of a region`},
	} {
		s := settings{Region: tt.is}
		err := s.inRegion(tt.wanted)
		if tt.problem == "" && err != nil || tt.problem != "" && (err == nil || !strings.Contains(err.Error(), tt.problem)) || s.Region != tt.becomes {
			t.Errorf("%q, wanted %q: %q, %v", tt.is, tt.wanted, s.Region, err)
		}
	}
}

// TestMirrorsOfExtras checks that machines get the images of Cilium from a lab that serves them, and that nothing unknown is served.
func TestMirrorsOfExtras(t *testing.T) {
	for _, with := range [][]string{nil, {"cilium"}, {"traefik"}, {"traefik", "cilium"}} {
		var s settings
		for _, first := range []bool{len(with) > 0, false} {
			if added, err := s.include(with); added != first || err != nil {
				t.Errorf("%v: %t, %v", with, added, err)
			}
		}
		l := &Lab{dir: t.TempDir()}
		if err := l.writeSettings(settings{APIPort: 1, Artifacts: netip.MustParseAddr("198.51.100.62"), With: s.With}); err != nil {
			t.Fatal(err)
		}
		v, err := l.Vars()
		if err != nil {
			t.Fatal(err)
		}
		if _, there := v.Elsewhere.Registries["quay.io"]; there != slices.Contains(with, "cilium") || there && !reflect.DeepEqual(v.Elsewhere.Registries["quay.io"], v.Elsewhere.Registries["docker.io"]) {
			t.Errorf("with %v: %v", with, v.Elsewhere.Registries)
		}
	}
	if _, err := new(settings).include([]string{"calico"}); err == nil || !strings.Contains(err.Error(), "cilium and traefik") {
		t.Error(err)
	}
}
