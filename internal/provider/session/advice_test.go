package session

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/tunnel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// TestAdviceFollowsTheStep checks that the advice on a failed apply depends only on the step at
// which it failed, not on the error's text.
func TestAdviceFollowsTheStep(t *testing.T) {
	t.Parallel()
	failed := func(e host.ApplyError) error {
		e.Machine = "worker-0"
		if e.Err == nil {
			e.Err = errors.New("it ended")
		}
		return fmt.Errorf("%w\nnext: something", &e)
	}
	for _, tt := range []struct {
		err  error
		says string
	}{
		{failed(host.ApplyError{Step: host.Step{Kind: host.StepDownload}}), "worker-0 downloads files itself"},
		{failed(host.ApplyError{Step: host.Step{Kind: host.StepDownload}, Room: &host.Room{}}), "Make room on worker-0"},
		{failed(host.ApplyError{Step: host.Step{Kind: host.StepWrite}, Said: "mv: No space left on device"}), "Make room on worker-0"},
		{failed(host.ApplyError{Step: host.Step{Kind: host.StepPackages}}), "worker-0 installs packages of its distribution"},
		{failed(host.ApplyError{Step: host.Step{Kind: host.StepCloudInit}, Unit: "cloud-final.service"}), "cloud-init status --long"},
		{failed(host.ApplyError{Step: host.Step{Kind: host.StepCloudInit, Target: "a shutdown"}}), "shutdown -c"},
		{failed(host.ApplyError{Step: host.Step{Kind: host.StepRestartUnit}, Unit: "cloud-x.service"}), ""},
		{failed(host.ApplyError{Step: host.Step{Kind: host.StepWrite}, Err: errors.New("download install packages")}), ""},
		{failed(host.ApplyError{Step: host.Step{Kind: host.StepWrite}, Err: errors.New("No space left on device, in words of ours")}), ""},
		{&remote.UnreachableError{Machine: "worker-0", Err: errors.New("no answer")}, "the address from which this computer reaches it"},
		{&remote.UnreachableError{Machine: "worker-0", Through: "bastion-0", Err: errors.New("no answer")}, "that it lets SSH in from the bastion bastion-0"},
		{&remote.UnreachableError{Machine: "worker-0", Through: "bastion-0", Err: errors.New("no answer")}, "set bastion_role of k8s_network"},
		{&remote.UnreachableError{Machine: "worker-0", Through: "bastion-0", Err: &remote.UnreachableError{Machine: "bastion-0", Err: errors.New("no answer")}}, "The bastion bastion-0 cannot be reached itself"},
		{&remote.UnreachableError{Machine: "worker-0", Tunnel: "EC2 Instance Connect Endpoint", Err: errors.New("no answer")}, "lets tcp 22 in from the security group of the EC2 Instance Connect Endpoint"},
		{&remote.WayError{Machine: "worker-0", Err: &tunnel.NoEndpointError{VPCID: "vpc-1"}}, "Set instance_connect_endpoint of k8s_network"},
		{&remote.WayError{Machine: "worker-0", Err: &remote.ForwardingError{Machine: "bastion-0", User: "admin"}}, "that has the machines; or choose another bastion"},
		{&remote.ForwardingError{Machine: "controller-0", User: "admin"}, "sshd on controller-0, with AllowTcpForwarding local (or yes), and a PermitOpen, if there is one, that has the ports of the machine itself. Then"},
		{&fleet.StepError{Machine: "worker-0", Step: "download", Err: errors.New("it ended")}, ""},
		{fmt.Errorf("find images: %w", infraaws.ErrNoRegion), "Nothing was changed. With several provider blocks, provider of the resource"},
	} {
		if got := Advice(tt.err); (tt.says == "") != (got == "") || !strings.Contains(got, tt.says) {
			t.Errorf("%v\nadvises %q, wanted %q", tt.err, got, tt.says)
		}
	}
	for _, e := range []*remote.UnreachableError{{Through: "b", Err: errors.New("no answer")}, {Through: "b", Err: &remote.UnreachableError{Err: errors.New("no answer")}}} {
		if got := Advice(e); strings.Contains(got, "this computer") || strings.Contains(got, "admin_cidrs") {
			t.Errorf("behind a bastion: %q", got)
		}
	}
}
