package machines_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote/remotetest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// ready is a machine that has booted.
type ready struct{}

func (ready) WaitReady(context.Context, time.Duration) error { return nil }

func (ready) Run(context.Context, remote.Command) (remote.Output, error) {
	return remote.Output{}, nil
}

// TestNeverReached: what runs on a machine that has no host key yet is not asked for, since nothing does.
func TestNeverReached(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	worker.Must(providertest.WorkerConfig(network))
	c.Pin(t, worker, "")
	*c.Duty = func(context.Context, fleet.Target) (*maintenance.Duty, error) {
		return nil, errors.New("it was asked")
	}
	if said := worker.Dismiss(); len(said.Errors)+len(said.Warnings) > 0 {
		t.Errorf("%v %v", said.Errors, said.Warnings)
	}
}

// TestNotTerminated: if a machine has left its cluster and is not terminated then, it joins again,
// unless EC2 says that it ends.
func TestNotTerminated(t *testing.T) {
	t.Parallel()
	refused := func(action string) fault.Fault {
		return fault.Fault{Kind: fault.Fail, Action: action, Code: "UnauthorizedOperation", Message: "Not you.", Status: 403}
	}
	for _, tt := range []struct {
		name  string
		fault fault.Fault // begins when the machine leaves
		ends  bool        // somebody terminates the machine then
	}{
		{"the termination is refused", refused("TerminateInstances"), false},
		{"everything is refused", refused("*"), false},
		{"another terminates it", refused("TerminateInstances"), true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := providertest.NewCloud(t)
			network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
			network.Must(providertest.NetworkConfig())
			worker.Must(providertest.WorkerConfig(network))
			id, _ := worker.Get("id").(string)
			var mu sync.Mutex
			var did []string
			machine := remotetest.New(t, "worker-0", func(script string) (string, int) {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case strings.Contains(script, "read_named"):
					return "active " + component.HAProxyUnit + "\x00\x00", 0
				case strings.Contains(script, "Notes units"):
					did = append(did, "note")
					if tt.ends {
						if _, err := c.Client.EC2.TerminateInstances(context.Background(), &ec2.TerminateInstancesInput{InstanceIds: []string{id}}); err != nil {
							t.Error(err)
						}
					}
					c.Account.Fault(tt.fault)
				case strings.Contains(script, "systemctl start --no-block"):
					did = append(did, "start")
				case strings.Contains(script, "Removes the note"):
					did = append(did, "forget")
				}
				return "", 0
			})
			pool := remote.NewPool(remote.Config{Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, net.JoinHostPort(machine.Host.Address, strconv.Itoa(machine.Host.Port)))
			}})
			t.Cleanup(func() { _ = pool.Close() })
			*c.Duty = func(ctx context.Context, at fleet.Target) (*maintenance.Duty, error) {
				return maintenance.Find(ctx, &fleet.Fleet{Pool: pool}, at)
			}
			c.Provider.Sessions[0].Shell = func(remote.Host) awsmachine.Shell { return ready{} }
			c.Pin(t, worker, machine.Host.HostKeys[0])
			worker.Refresh()

			said := worker.Dismiss()
			if said.Failure() == "" {
				t.Fatal("it was deleted")
			}
			want := []string{"note"}
			if !tt.ends {
				want = append(want, "start", "forget")
			}
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(did, want) {
				t.Errorf("it did %q, wanted %q", did, want)
			}
			var warned string
			for _, w := range said.Warnings {
				warned += w.Summary + ": " + w.Detail
			}
			if strings.Contains(warned, "joins again when k8s_etcd_cluster is applied") == tt.ends {
				t.Errorf("warned %q", warned)
			}
		})
	}
}
