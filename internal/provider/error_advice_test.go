package provider

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
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
		{failed(host.ApplyError{Step: host.Step{Kind: host.StepRestartUnit}, Unit: "cloud-x.service"}), ""},
		{failed(host.ApplyError{Step: host.Step{Kind: host.StepWrite}, Err: errors.New("download install packages")}), ""},
		{failed(host.ApplyError{Step: host.Step{Kind: host.StepWrite}, Err: errors.New("No space left on device, in words of ours")}), ""},
		{&fleet.StepError{Machine: "worker-0", Step: "download", Err: errors.New("it ended")}, ""},
	} {
		if got := advice(tt.err); (tt.says == "") != (got == "") || !strings.Contains(got, tt.says) {
			t.Errorf("%v\nadvises %q, wanted %q", tt.err, got, tt.says)
		}
	}
}
