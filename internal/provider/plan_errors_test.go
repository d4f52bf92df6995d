package provider_test

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestBadInput checks that every mistake is found in the plan, on its attribute, without a single
// AWS call (the endpoint does not exist).
func TestBadInput(t *testing.T) {
	t.Parallel()
	c := providertest.OfflineCore(t)
	ref := providertest.Values{
		"cluster": "demo", "vpc_id": "vpc-1", "vpc_cidr": "10.240.0.0/16", "node_cidr": "10.240.0.0/24",
		"subnets":            []any{providertest.Values{"id": "subnet-1", "cidr": "10.240.0.0/24"}},
		"security_group_ids": providertest.Values{"lb": "sg-1", "controller": "sg-2", "etcd": "sg-3", "worker": "sg-4", "ssh": "sg-5"},
	}
	network := providertest.NetworkConfig()
	machine := providertest.Values{"name": "worker-0", "role": "worker", "network": ref, "private_ip": "10.240.0.20"}
	keys := providertest.Values{"cluster": "demo"}
	kubeconfig := providertest.Values{"control_plane": providertest.Unknown}
	copied := providertest.Values{"pki": providertest.Unknown, "recipients": providertest.Unknown, "bucket": providertest.Unknown}
	backup := providertest.With(providertest.NewRoles(t).Backup(), nil)
	pool, controllers := newPool, newControllers
	for _, test := range []struct {
		resource string
		config   providertest.Values
		name     string
		value    any
		want     string // part of the error, which must be on the attribute
	}{
		{"k8s_network", network, "cluster", "Demo_1", "lower-case"},
		{"k8s_network", network, "admin_cidrs", nil, "admin_cidrs"},
		{"k8s_network", network, "admin_cidrs", []any{}, "at least 1"},
		{"k8s_network", network, "admin_cidrs", []any{"198.51.100.7/24"}, "the network is 198.51.100.0/24"},
		{"k8s_network", network, "admin_cidrs", []any{"everybody"}, "not valid IPv4 CIDR string format"},
		{"k8s_network", network, "admin_cidrs", []any{"1.2.3.4/0"}, "host bits"},
		{"k8s_network", network, "admin_cidrs", []any{"2001:db8::/32"}, "An IPv6 CIDR string format was provided"},
		{"k8s_network", network, "nodeport_cidrs", []any{"10.0.0.1/8"}, "the network is 10.0.0.0/8"},
		{"k8s_network", network, "node_cidr", "10.241.0.0/24", "does not lie within 10.240.0.0/16"},
		{"k8s_network", network, "node_cidr", "10.240.0.0/30", "between /16 and /28"},
		{"k8s_network", network, "vpc_cidr", "10.240.0.0/8", "host bits"},
		{"k8s_network", network, "vpc_id", "vpc-1", "subnet_ids"},
		{"k8s_network", network, "tags", providertest.Values{"Name": "x"}, "sets \"Name\" itself"},
		{"k8s_network", network, "ignore_rules", providertest.Values{"description_prefixes": []any{""}}, "between 1 and 255"},
		{"k8s_network", network, "ignore_rules", providertest.Values{"tag_keys": []any{}}, "at least 1"},
		{"k8s_network", network, "ignore_rules", providertest.Values{}, "At least one attribute"},
		{"k8s_network", network, "timeouts", providertest.Values{"create": "soon"}, "Time Duration"},
		{"k8s_machine", machine, "name", "worker_0", "lower-case"},
		{"k8s_machine", machine, "role", "master", "master"},
		{"k8s_machine", machine, "private_ip", "10.240.1.20", "does not lie within 10.240.0.0/24"},
		{"k8s_machine", machine, "private_ip", "10.240.0.3", "reserved by AWS"},
		{"k8s_machine", machine, "private_ip", "10.240.0.255", "reserved by AWS"},
		{"k8s_machine", machine, "private_ip", "here", "not valid IPv4 string format"},
		{"k8s_machine", machine, "pod_cidr", "10.200.0.1/24", "the network is 10.200.0.0/24"},
		{"k8s_machine", machine, "pod_cidr", "10.240.9.0/24", "overlaps the VPC's"},
		{"k8s_machine", machine, "root_volume_size", 4, "between 8"},
		{"k8s_machine", machine, "ami", "debian", "neither an AMI id"},
		{"k8s_machine", machine, "user", "root", "root logins are off"},
		{"k8s_pki", keys, "cluster", "sg-demo", "begins with sg-"},
		{"k8s_pki", keys, "key_store", "vault", "vault"},
		{"k8s_pki", keys, "ca_validity", "10 years", "not a duration such as 87600h"},
		{"k8s_pki", keys, "ca_validity", "-1h", "too short"},
		{"k8s_pki", keys, "prefix", "k8s", "begin and end with a slash"},
		{"k8s_pki", keys, "generations", providertest.Values{"encryption": []any{2, 2}}, "twice"},
		{"k8s_pki", keys, "restore_from", providertest.Values{"bucket": "s3://copies", "key": "k"}, "without s3://"},
		{"k8s_pki_copy", copied, "recipients", []any{}, "at least 1"},
		{"k8s_pki_copy", copied, "recipients", []any{"age1abc"}, "not an age recipient"},
		{"k8s_pki_copy", copied, "recipients", []any{"AGE-SECRET-KEY-1ABC"}, "this is an identity, which is secret"},
		{"k8s_pki_copy", copied, "bucket", "Copies", "lower-case letters"},
		{"k8s_pki_copy", copied, "prefix", "/k8s", "must end with a slash, not begin with one"},
		{"k8s_etcd_backup", backup, "interval", "30s", "at least 1m0s"},
		{"k8s_etcd_backup", backup, "max_age", "1h", "max_age must be longer than the interval"},
		{"k8s_etcd_backup", backup, "keep", 0, "between 1 and 10000"},
		{"k8s_etcd_backup", backup, "keep_for", "50m", "Snapshots would be deleted after 50m0s"},
		{"k8s_etcd_backup", backup, "bucket", "s3://snapshots", "without s3://"},
		{"k8s_etcd_backup", backup, "prefix", "/k8s", "must end with a slash, not begin with one"},
		{"k8s_etcd_backup", backup, "endpoint", "aws.example", "not an http or https URL"},
		{"k8s_etcd_backup", backup, "kms_key_id", "my key", "neither the id, nor the ARN"},
		{"k8s_etcd_backup", backup, "region", nil, "set the region of the bucket"},
		{"k8s_etcd_backup", backup, "hosts", []any{}, "at least 1"},
		{"k8s_kubeconfig", kubeconfig, "ttl", "a day", "not a valid Go Time Duration"},
		{"k8s_kubeconfig", kubeconfig, "early_renewal", "9h", "valid for 8h and renewed 9h before"},
		{"k8s_worker_pool", pool, "version", "latest", "latest"},
		{"k8s_worker_pool", pool, "labels", providertest.Values{"a b": "c"}, "a b"},
		{"k8s_worker_pool", pool, "labels", providertest.Values{"tier": "b l u e"}, "b l u e"},
		{"k8s_worker_pool", pool, "taints", []any{providertest.Values{"key": "a b", "effect": "NoSchedule"}}, `taint "a b"`},
		{"k8s_worker_pool", pool, "taints", []any{providertest.Values{"key": "gpu", "effect": "NoSchedule"}, providertest.Values{"key": "gpu", "value": "x", "effect": "NoSchedule"}}, "given twice"},
		{"k8s_worker_pool", pool, "registries", registries("docker.io", providertest.Values{"url": "ftp://mirror"}), "not an http or https URL"},
		{"k8s_worker_pool", pool, "kubelet_config", providertest.Values{"cgroupDrivr": "systemd"}, "cgroupDrivr"},
		{"k8s_worker_pool", pool, "kubelet_config", `{"cgroupDriver": "systemd"}`, "this is a string. Write the object itself, without jsonencode"},
		{"k8s_worker_pool", pool, "kubelet_config", []any{providertest.Values{}}, "this is a list"},
		{"k8s_worker_pool", pool, "kube_proxy_config", "mode: nftables", "this is a string"},
		{"k8s_worker_pool", pool, "containerd_config", 5, "this is a number"},
		{"k8s_worker_pool", pool, "containerd_config", tftypes.NewValue(tftypes.String, tftypes.UnknownValue), "this is a string"},
		{"k8s_worker_pool", pool, "extra_args", providertest.Values{"kubelet": providertest.Values{"--v": "4"}}, "without leading dashes"},
		{"k8s_worker_pool", pool, "drain_timeout", "soon", "not a valid Go Time Duration"},
		{"k8s_worker_pool", pool, "max_unavailable", 0, "at least 1"},
		{"k8s_control_plane", controllers, "dns_ip", "10.32.0.1", "must not be its first address"},
		{"k8s_control_plane", controllers, "dns_ip", "10.33.0.10", "must lie in service_cidr"},
		{"k8s_control_plane", controllers, "service_cidr", "10.200.7.0/24", "overlap"},
		{"k8s_control_plane", controllers, "node_cidrs", []any{"10.240.0.0/24", "10.200.3.0/24"}, "node_cidrs 10.200.3.0/24 overlaps pod_cidr 10.200.0.0/16"},
		{"k8s_control_plane", controllers, "node_cidrs", []any{"10.32.0.0/28"}, "node_cidrs 10.32.0.0/28 overlaps service_cidr 10.32.0.0/20"},
		{"k8s_control_plane", controllers, "node_cidrs", []any{"10.240.0.0/16", "10.240.1.0/24"}, "node_cidrs has 10.240.0.0/16 and 10.240.1.0/24, which overlap"},
		{"k8s_control_plane", controllers, "node_cidrs", []any{"10.240.0.1/24"}, "the network is 10.240.0.0/24"},
		{"k8s_control_plane", controllers, "pod_routes", providertest.Values{"10.200.1.5/24": "10.240.0.20"}, "the network is 10.200.1.0/24"},
		{"k8s_control_plane", controllers, "pod_routes", providertest.Values{"10.200.1.0/24": "worker-0"}, "is not an IPv4 address"},
		{"k8s_control_plane", controllers, "pod_routes", providertest.Values{"10.201.1.0/24": "10.240.0.20"}, "10.201.1.0/24 is not a part of the cluster's pod_cidr 10.200.0.0/16"},
		{"k8s_control_plane", controllers, "pod_routes", providertest.Values{"10.200.1.0/24": "10.200.1.1"}, "a route leads to the private_ip of a node"},
		{"k8s_control_plane", controllers, "allowed_cidrs", []any{"10.240.0.1/24"}, "the network is 10.240.0.0/24"},
		{"k8s_control_plane", controllers, "allowed_cidrs", []any{}, "at least 1"},
		{"k8s_control_plane", controllers, "domain", "Cluster", "not a DNS domain"},
		{"k8s_control_plane", controllers, "extra_sans", []any{"api example"}, "neither an IP address nor a DNS name"},
		{"k8s_control_plane", controllers, "audit_policy", "rules: []", "audit"},
		{"k8s_control_plane", controllers, "admission_plugins", providertest.Values{"EventRateLimits": providertest.Values{}}, "EventRateLimits"},
		{"k8s_control_plane", controllers, "admission_plugins", providertest.Values{"PodSecurity": "{}"}, "this is a string"},
		{"k8s_control_plane", controllers, "admission_plugins", "{}", "this is a string"},
		{"k8s_control_plane", controllers, "scheduler_config", providertest.Values{"percentage": 5}, "percentage"},
	} {
		config := maps.Clone(test.config)
		config[test.name] = test.value
		ch := c.Instance(test.resource).Plan(config)
		got := ch.Failure()
		if !strings.Contains(got, test.want) || !strings.HasPrefix(got, `"`+test.name+`"`) {
			t.Errorf("%s.%s = %v: got %q, wanted %q on the attribute", test.resource, test.name, test.value, got, test.want)
		}
	}

	t.Run("a controller outside the subnets", func(t *testing.T) {
		config := maps.Clone(controllers)
		config["hosts"] = []any{providertest.Values{"name": "controller-0", "address": "203.0.113.9", "private_ip": "192.168.7.10", "host_key": providertest.PublicKey(t)}}
		for _, test := range []struct {
			subnets any
			want    string
		}{
			{nil, ""}, {providertest.Unknown, ""}, {[]any{"192.168.6.0/24", providertest.Unknown}, ""}, {[]any{"192.168.6.0/24", "192.168.7.0/24"}, ""},
			{[]any{"192.168.6.0/24", "192.168.8.0/24"}, "192.168.7.10 is in none of the control plane's node_cidrs, 192.168.6.0/24, 192.168.8.0/24: add the subnet that controller-0 is in."},
		} {
			config["node_cidrs"] = test.subnets
			got := c.Instance("k8s_control_plane").Plan(config).Failure()
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("node_cidrs = %v: got %q, wanted %q", test.subnets, got, test.want)
			}
		}
	})
	t.Run("pods on a controller", func(t *testing.T) {
		config := maps.Clone(machine)
		config["role"], config["pod_cidr"] = "controller", "10.200.0.0/24"
		if got := c.Instance("k8s_machine").Plan(config).Failure(); !strings.Contains(got, "set controller_pods of the k8s_network") {
			t.Errorf("got %q", got)
		}
	})
	t.Run("the whole internet, written out", func(t *testing.T) {
		config := providertest.NetworkConfig()
		config["admin_cidrs"] = []any{"0.0.0.0/0"}
		ch := c.Instance("k8s_network").Plan(config)
		if len(ch.Errors) > 0 || len(ch.Warnings) != 1 {
			t.Errorf("%d warnings, errors %q", len(ch.Warnings), ch.Failure())
		}
	})
	t.Run("a prefix for keys in the state", func(t *testing.T) {
		if got := c.Instance("k8s_pki").Plan(providertest.Values{"cluster": "demo", "key_store": "state", "prefix": "/a/"}).Failure(); !strings.Contains(got, "ssm") {
			t.Errorf("got %q", got)
		}
	})
}

// TestUnknownInput checks that an unknown value is neither an error nor treated as empty.
func TestUnknownInput(t *testing.T) {
	t.Parallel()
	c := providertest.NewCore(t, provider.New("test"), providertest.Values{"region": providertest.Unknown, "default_tags": providertest.Unknown, "ssh": providertest.Values{"private_key": providertest.Unknown, "user": providertest.Unknown}})
	for resource, config := range map[string]providertest.Values{
		"k8s_network":  {"cluster": providertest.Unknown, "admin_cidrs": []any{providertest.Unknown}, "node_cidr": providertest.Unknown, "tags": providertest.Unknown},
		"k8s_machine":  {"name": providertest.Unknown, "role": providertest.Unknown, "private_ip": providertest.Unknown, "pod_cidr": providertest.Unknown, "network": providertest.Unknown, "user": nil},
		"k8s_pki":      {"cluster": providertest.Unknown, "key_store": providertest.Unknown, "restore_from": providertest.Unknown, "restore_identity_wo": providertest.Unknown},
		"k8s_pki_copy": {"pki": providertest.Unknown, "recipients": []any{providertest.Unknown, "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"}, "bucket": providertest.Unknown, "region": providertest.Unknown, "kms_key_id": providertest.Unknown},
		"k8s_worker_pool": {
			"version": providertest.Unknown, "hosts": providertest.Unknown, "control_plane": providertest.Unknown, "labels": providertest.Unknown,
			"taints": []any{providertest.Values{"key": "gpu", "value": providertest.Unknown, "effect": "NoSchedule"}, providertest.Values{"key": "gpu", "effect": "NoSchedule"}},
		},
	} {
		ch := c.Instance(resource).Plan(config)
		if got := ch.Failure(); got != "" {
			t.Errorf("%s: %s", resource, got)
			continue
		}
		planned, _ := providertest.Plain(ch.Planned).(providertest.Values)
		if tags, has := planned["tags_all"]; has && tags != providertest.Unknown {
			t.Errorf("%s: tags_all is planned as %v", resource, tags)
		}
	}
}

// TestProviderConfiguration checks that an invalid configuration is an error on its argument.
func TestProviderConfiguration(t *testing.T) {
	t.Parallel()
	role := func(more providertest.Values) providertest.Values {
		return providertest.With(providertest.Values{"role_arn": "arn:aws:iam::123456789012:role/x"}, more)
	}
	for _, test := range []struct {
		name   string
		config providertest.Values
		env    map[string]string
		want   string
	}{
		{"nothing at all", providertest.Values{}, nil, ""},
		{"an invalid key", providertest.Values{"ssh": providertest.Values{"private_key": "-----BEGIN"}}, nil, "private_key"},
		{"an invalid key in the environment", providertest.Values{}, map[string]string{"K8S_SSH_PRIVATE_KEY": "no"}, "private_key"},
		{"a missing file", providertest.Values{"ssh": providertest.Values{"private_key_file": "/nowhere"}}, nil, "private_key_file"},
		{"a missing agent", providertest.Values{"ssh": providertest.Values{"agent": true}}, nil, "agent"},
		{"missing checksums", providertest.Values{"artifact_checksums": "/nowhere"}, nil, "artifact_checksums"},
		{"an unencrypted mirror without checksums", providertest.Values{"artifact_mirror": "http://mirror.example.com"}, nil, "artifact_mirror"},
		{"the same from the environment", providertest.Values{}, map[string]string{"K8S_ARTIFACT_MIRROR": "HTTP://mirror.example.com"}, "artifact_mirror"},
		{"an unencrypted mirror with checksums", providertest.Values{"artifact_mirror": "http://mirror.example.com"},
			map[string]string{"K8S_ARTIFACT_CHECKSUMS": strings.Repeat("0", 64) + "  dl.k8s.io/release/v1.36.4/bin/linux/amd64/kubelet"}, ""},
		{"an invalid mirror from the environment", providertest.Values{}, map[string]string{"K8S_ARTIFACT_MIRROR": "mirror.example.com"}, "artifact_mirror"},
		{"checksums that are not in the layout", providertest.Values{"artifact_checksums": strings.Repeat("0", 64) + "  release/v1.36.4/bin/linux/amd64/kubelet"}, nil, "artifact_checksums"},
		{"an endpoint and a bastion", providertest.Values{"ssh": providertest.Values{"instance_connect": providertest.Values{}, "bastion": providertest.Values{"address": "192.0.2.1", "host_keys": []any{providertest.PublicKey(t)}}}}, nil, "instance_connect"},
		{"no endpoint's id", providertest.Values{"ssh": providertest.Values{"instance_connect": providertest.Values{"endpoint_id": "vpce-1"}}}, nil, "begins with eice-"},
		{"a long tunnel", providertest.Values{"ssh": providertest.Values{"instance_connect": providertest.Values{"max_tunnel_duration": "2h"}}}, nil, "AWS ends a tunnel after an hour"},
		{"half a bastion", providertest.Values{"ssh": providertest.Values{"bastion": providertest.Values{"address": "192.0.2.1"}}}, nil, "bastion"},
		{"a role without a name", providertest.Values{"assume_role": providertest.Values{"session_name": "x"}}, nil, "role_arn"},
		{"a policy that is no JSON", providertest.Values{"assume_role": providertest.Values{"role_arn": "arn:aws:iam::123456789012:role/x", "policy": "{"}}, nil, "Invalid JSON String Value"},
		{"a tag of AWS", providertest.Values{"assume_role": role(providertest.Values{"tags": providertest.Values{"AWS:x": "y"}})}, nil, "reserved for AWS"},
		{"a character of no tag", providertest.Values{"assume_role": role(providertest.Values{"tags": providertest.Values{"a": "b*"}})}, nil, "a character that a session tag cannot have"},
		{"a long value", providertest.Values{"assume_role": role(providertest.Values{"tags": providertest.Values{"a": strings.Repeat("b", 257)}})}, nil, "at most 256"},
		{"one tag twice", providertest.Values{"assume_role": role(providertest.Values{"tags": providertest.Values{"Team": "a", "team": "b"}})}, nil, `"Team" and "team" differ only in case`},
		{"a transitive key without a tag", providertest.Values{"assume_role": role(providertest.Values{"tags": providertest.Values{"a": "b"}, "transitive_tag_keys": []any{"c"}})}, nil, `"c" is not a key of tags`},
		{"a transitive key without tags", providertest.Values{"assume_role": role(providertest.Values{"transitive_tag_keys": []any{"c"}})}, nil, `"c" is not a key of tags`},
		{"a source identity with a space", providertest.Values{"assume_role": role(providertest.Values{"source_identity": "a b"})}, nil, "a source identity has 2 to 64"},
		{"a session with all of it", providertest.Values{"assume_role": role(providertest.Values{"tags": providertest.Values{"k8s-cluster": "ada", "empty": ""}, "transitive_tag_keys": []any{"k8s-cluster"}, "source_identity": "ada@example.com"})}, nil, ""},
		{"tags that are not known yet", providertest.Values{"assume_role": role(providertest.Values{"tags": providertest.Unknown, "transitive_tag_keys": []any{"c"}})}, nil, ""},
		{"an invalid timeout", providertest.Values{"ssh": providertest.Values{"connect_timeout": "soon"}}, nil, "not a valid Go Time Duration"},
		{"everything", providertest.Values{
			"region": "eu-central-1", "profile": "p", "token": "t", "max_retries": 3, "retry_mode": "adaptive",
			"assume_role": providertest.Values{"role_arn": "arn:aws:iam::123456789012:role/x", "duration": "1h"},
			"ssh":         providertest.Values{"private_key": providertest.SSHKey(t), "connect_timeout": "3s", "bastion": providertest.Values{"address": "192.0.2.1", "host_keys": []any{providertest.PublicKey(t)}}},
		}, nil, ""},
	} {
		p := provider.New("test")
		p.Environment.Getenv = func(name string) string { return test.env[name] }
		got := configure(t, p, test.config)
		if test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: got %q, wanted an error on %q", test.name, got, test.want)
		}
		if strings.Contains(got, "BEGIN") {
			t.Errorf("%s: the error repeats the key", test.name)
		}
	}
}

// TestEndOfLife checks that the plan of a release that upstream soon stops maintaining has a
// warning that names the next release.
func TestEndOfLife(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, time.November, 27, 0, 0, 0, 0, time.UTC)
	c := providertest.NewCore(t, provider.NewAt("test", func() time.Time { return now }), providertest.Values{})
	config := providertest.Values{"version": "1.35.8", "hosts": providertest.Unknown, "etcd": providertest.Unknown, "lb": providertest.Unknown}
	if said := c.Instance("k8s_control_plane").Plan(config); len(said.Warnings) > 0 {
		t.Errorf("it warns too early: %s", said.Warnings[0].Detail)
	}
	now = now.AddDate(0, 0, 1)
	for resource, config := range map[string]providertest.Values{
		"k8s_control_plane": config, "k8s_worker_pool": {"version": "1.35.8", "hosts": providertest.Unknown, "control_plane": providertest.Unknown},
	} {
		said := c.Instance(resource).Plan(config)
		if len(said.Warnings) != 1 || said.Warnings[0].Attribute.String() != `AttributeName("version")` || !strings.Contains(said.Warnings[0].Detail, "Upgrade to 1.36.4 next.") {
			t.Errorf("%s: %v", resource, said.Warnings)
		}
	}
}
