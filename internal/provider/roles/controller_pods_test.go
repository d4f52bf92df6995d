package roles_test

import (
	"slices"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestControllerPods opens the controllers' security group for pods and closes it again. Only between
// may a controller have a pod_cidr.
func TestControllerPods(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, controller := c.Instance("k8s_network"), c.Instance("k8s_machine")
	closed, open := providertest.NetworkConfig(), providertest.With(providertest.NetworkConfig(), providertest.Values{"controller_pods": true})
	fromWorkers := func() (ports []int32) {
		t.Helper()
		groups := network.Get("security_group_ids").(providertest.Values)
		found := providertest.Answer[*ec2.DescribeSecurityGroupsOutput](t)(c.Client.EC2.DescribeSecurityGroups(t.Context(), &ec2.DescribeSecurityGroupsInput{GroupIds: []string{groups["controller"].(string)}}))
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
	network.Must(closed)
	machine := func() providertest.Values {
		return providertest.Values{"name": "controller-0", "role": "controller", "network": network.Get("ref"), "private_ip": "10.240.0.10", "pod_cidr": "10.200.255.0/24"}
	}
	providertest.Mention(t, controller.Plan(machine()).Failure(), "pod_cidr", "set controller_pods of the k8s_network")

	network.Must(open)
	network.Converged(open)
	if got := fromWorkers(); !slices.Equal(got, []int32{0, 21, 23, 2378, 2381, 6443, 6443, 65535}) {
		t.Errorf("open from workers: %v", got)
	}
	imported := c.Instance("k8s_network")
	if imported.Imports("demo"); imported.Get("controller_pods") != true {
		t.Errorf("imported as %v", imported.Get("controller_pods"))
	}
	controller.Must(machine())
	controller.Converged(machine())
	if got := c.Found(t, controller); sdk.ToBool(got.SourceDestCheck) {
		t.Error("the instance drops what is sent to pods")
	}
	providertest.Mention(t, c.Instance("k8s_machine").Plan(providertest.With(machine(), providertest.Values{"name": "lb-0", "role": "lb"})).Failure(), "pod_cidr", "lb-0 has the role lb")

	network.Must(closed)
	network.Converged(closed)
	if got := fromWorkers(); !slices.Equal(got, []int32{6443, 6443}) {
		t.Errorf("open from workers: %v", got)
	}
	providertest.Mention(t, controller.Plan(machine()).Failure(), "controller_pods")
	controller.Must(providertest.With(machine(), providertest.Values{"pod_cidr": nil}))
}

// TestControllersInPool checks that controllers may be nodes, with a warning if they have no taint.
func TestControllersInPool(t *testing.T) {
	t.Parallel()
	c := providertest.NewRoles(t)
	host := providertest.With(c.Pool["hosts"].([]any)[0].(providertest.Values), providertest.Values{"name": "controller-0", "role": "controller"})
	config := providertest.With(c.Pool, providertest.Values{"hosts": []any{host}})
	for effect, warned := range map[string]bool{"": true, "PreferNoSchedule": true, "NoSchedule": false, "NoExecute": false} {
		config := config
		if effect != "" {
			config = providertest.With(config, providertest.Values{"taints": []any{providertest.Values{"key": "node-role.kubernetes.io/control-plane", "effect": effect}}})
		}
		said := c.Instance("k8s_worker_pool").Plan(config)
		c.Fatal(said.Errors)
		got := slices.ContainsFunc(said.Warnings, func(d *tfprotov6.Diagnostic) bool {
			return strings.Contains(d.Summary, "Pods run beside the control plane") && strings.Contains(d.Detail, "controller-0")
		})
		if got != warned {
			t.Errorf("with the effect %q the plan warns: %t", effect, got)
		}
	}
}
