package lifecycle_test

import (
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// terminate does to a machine what anybody with access to the account can.
func (c *cluster) terminate(t *testing.T, machine string) {
	t.Helper()
	api := ec2.NewFromConfig(suite.AWS())
	out, err := api.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{Filters: []types.Filter{
		{Name: aws.String("tag:Name"), Values: []string{"demo-" + machine, machine}},
		{Name: aws.String("instance-state-name"), Values: []string{"running"}},
	}})
	if err != nil || len(out.Reservations) != 1 || len(out.Reservations[0].Instances) != 1 {
		t.Fatalf("finding %s: %v, %d found", machine, err, len(out.Reservations))
	}
	if _, err := api.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{*out.Reservations[0].Instances[0].InstanceId}}); err != nil {
		t.Fatal(err)
	}
}

// members returns the ids of etcd's voters by machine.
func (c *cluster) members(t *testing.T) map[string]string {
	t.Helper()
	out := suite.Console(t, "controller-0", `etcdctl --endpoints https://127.0.0.1:2379 --cacert /etc/etcd/pki/ca.crt --cert /etc/etcd/pki/server.crt --key /etc/etcd/pki/server.key member list`)
	members := map[string]string{}
	for line := range strings.Lines(out) {
		// ID, status, name, peer addresses, client addresses, is learner
		f := strings.Split(strings.TrimSpace(line), ", ")
		if len(f) == 6 && f[1] == "started" && f[5] == "false" {
			members[f[2]] = f[0]
		}
	}
	return members
}
