package machines_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestTerminatedUnasked: a machine that can no longer answer can be destroyed. A controller that
// answers and does not say whether etcd runs on it is asked once more, and kept until it says so or
// is stopped.
func TestTerminatedUnasked(t *testing.T) {
	t.Parallel()
	mute := &remote.ExitError{Code: 1, Stderr: "systemctl cannot tell whether etcd.service is active"}
	gone := &remote.UnreachableError{Err: errors.New("no route to host")}
	controller := func(network *providertest.Instance) providertest.Values {
		return providertest.Values{"name": "controller-0", "role": "controller", "network": network.Get("ref"), "private_ip": "10.240.0.10"}
	}
	for _, tt := range []struct {
		name    string
		machine func(*providertest.Instance) providertest.Values
		errs    []error // of the questions, in order
		kept    bool
		warned  string
	}{
		{"a worker does not answer", providertest.WorkerConfig, []error{gone}, false, "no route to host"},
		{"a controller does not answer", controller, []error{gone}, false, "no route to host"},
		{"a worker does not tell", providertest.WorkerConfig, []error{mute, mute}, false, "systemctl cannot tell"},
		{"a controller tells the second time", controller, []error{mute, nil}, false, ""},
		{"a controller does not tell", controller, []error{mute, mute}, true, ""},
		{"a controller is away the second time", controller, []error{mute, gone}, false, "no route to host"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := providertest.NewCloud(t)
			network, machine := c.Instance("k8s_network"), c.Instance("k8s_machine")
			network.Must(providertest.NetworkConfig())
			machine.Must(tt.machine(network))
			idle := *c.Duty
			var asked atomic.Int32
			*c.Duty = func(ctx context.Context, at fleet.Target) (*maintenance.Duty, error) {
				if err := tt.errs[asked.Add(1)-1]; err != nil {
					return nil, err
				}
				return idle(ctx, at)
			}
			done := machine.Dismiss()
			if int(asked.Load()) != len(tt.errs) {
				t.Errorf("asked %d times, wanted %d", asked.Load(), len(tt.errs))
			}
			var warned string
			for _, w := range done.Warnings {
				warned += w.Summary + ": " + w.Detail
			}
			if (warned == "") != (tt.warned == "") || !strings.Contains(warned, tt.warned) {
				t.Errorf("warned %q, wanted %q", warned, tt.warned)
			}
			if said := done.Failure(); (said != "") != tt.kept || tt.kept && (!strings.Contains(said, "stop the instance "+machine.Get("id").(string)) || !strings.Contains(said, "systemctl cannot tell")) {
				t.Errorf("said %q", said)
			}
			if machine.State.IsNull() == tt.kept {
				t.Errorf("kept is %t, wanted %t", !machine.State.IsNull(), tt.kept)
			}
		})
	}
}
