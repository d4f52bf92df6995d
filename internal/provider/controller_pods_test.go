package provider

import (
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
)

// TestControllerPods opens the controllers' security group for pods and closes it again. Only between
// may a controller have a pod_cidr.
func TestControllerPods(t *testing.T) {
	t.Parallel()
	c := newCloud(t)
	network, controller := c.instance("k8s_network"), c.instance("k8s_machine")
	closed, open := networkConfig(), with(networkConfig(), values{"controller_pods": true})
	fromWorkers := func() (ports []int32) {
		t.Helper()
		groups := network.get("security_group_ids").(values)
		found := answer[*ec2.DescribeSecurityGroupsOutput](t)(c.client.EC2.DescribeSecurityGroups(t.Context(), &ec2.DescribeSecurityGroupsInput{GroupIds: []string{groups["controller"].(string)}}))
		for _, p := range found.SecurityGroups[0].IpPermissions {
			for _, pair := range p.UserIdGroupPairs {
				if *pair.GroupId == groups["worker"] && sdk.ToString(p.IpProtocol) == "tcp" {
					ports = append(ports, *p.FromPort, *p.ToPort)
				}
			}
		}
		slices.Sort(ports)
		return ports
	}
	network.must(closed)
	machine := func() values {
		return values{"name": "controller-0", "role": "controller", "network": network.get("ref"), "private_ip": "10.240.0.10", "pod_cidr": "10.200.255.0/24"}
	}
	mention(t, controller.plan(machine()).failure(), "pod_cidr", "set controller_pods of the k8s_network")

	network.must(open)
	network.settled(open)
	if got := fromWorkers(); !slices.Equal(got, []int32{0, 21, 23, 2378, 2381, 6443, 6443, 65535}) {
		t.Errorf("open from workers: %v", got)
	}
	imported := c.instance("k8s_network")
	if imported.imports("demo"); imported.get("controller_pods") != true {
		t.Errorf("imported as %v", imported.get("controller_pods"))
	}
	controller.must(machine())
	controller.settled(machine())
	if got := c.found(t, controller); sdk.ToBool(got.SourceDestCheck) {
		t.Error("the instance drops what is sent to pods")
	}
	mention(t, c.instance("k8s_machine").plan(with(machine(), values{"name": "lb-0", "role": "lb"})).failure(), "pod_cidr", "lb-0 has the role lb")

	network.must(closed)
	network.settled(closed)
	if got := fromWorkers(); !slices.Equal(got, []int32{6443, 6443}) {
		t.Errorf("open from workers: %v", got)
	}
	mention(t, controller.plan(machine()).failure(), "controller_pods")
	controller.must(with(machine(), values{"pod_cidr": nil}))
}

// TestControllersInPool checks that controllers may be nodes, with a warning if they have no taint.
func TestControllersInPool(t *testing.T) {
	t.Parallel()
	c := newRoles(t)
	host := with(c.pool["hosts"].([]any)[0].(values), values{"name": "controller-0", "role": "controller"})
	config := with(c.pool, values{"hosts": []any{host}})
	for effect, warned := range map[string]bool{"": true, "PreferNoSchedule": true, "NoSchedule": false, "NoExecute": false} {
		config := config
		if effect != "" {
			config = with(config, values{"taints": []any{values{"key": "node-role.kubernetes.io/control-plane", "effect": effect}}})
		}
		said := c.instance("k8s_worker_pool").plan(config)
		c.fatal(said.errors)
		got := slices.ContainsFunc(said.warnings, func(d *tfprotov6.Diagnostic) bool {
			return strings.Contains(d.Summary, "Pods run beside the control plane") && strings.Contains(d.Detail, "controller-0")
		})
		if got != warned {
			t.Errorf("with the effect %q the plan warns: %t", effect, got)
		}
	}
}
