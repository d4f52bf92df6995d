package machine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// answeringEC2 is an EC2 that answers each call with what answer returns.
func answeringEC2(answer func(in any) (out any, err error)) *aws.Client {
	instead := middleware.InitializeMiddlewareFunc("answer", func(_ context.Context, in middleware.InitializeInput, _ middleware.InitializeHandler) (out middleware.InitializeOutput, md middleware.Metadata, err error) {
		out.Result, err = answer(in.Parameters)
		return out, md, err
	})
	return &aws.Client{EC2: ec2.New(ec2.Options{Region: "eu-central-1", APIOptions: []func(*middleware.Stack) error{
		func(s *middleware.Stack) error { return s.Initialize.Add(instead, middleware.Before) },
	}})}
}

// healthyEC2 reports that the instance runs and has passed its checks.
func healthyEC2(id string) *aws.Client {
	return answeringEC2(func(in any) (any, error) {
		switch in.(type) {
		case *ec2.DescribeInstancesInput:
			return &ec2.DescribeInstancesOutput{Reservations: []types.Reservation{{Instances: []types.Instance{
				{InstanceId: sdk.String(id), State: &types.InstanceState{Name: types.InstanceStateNameRunning}}}}}}, nil
		case *ec2.DescribeInstanceStatusInput:
			return &ec2.DescribeInstanceStatusOutput{InstanceStatuses: []types.InstanceStatus{
				{InstanceId: sdk.String(id), InstanceStatus: &types.InstanceStatusSummary{Status: types.SummaryStatusOk}}}}, nil
		}
		return nil, fmt.Errorf("unexpected call %T", in)
	})
}

// A machine that refuses connections gets more time than a machine that does not answer, whose
// connections something blocks.
func TestAliveWhile(t *testing.T) {
	for _, tt := range []struct {
		name     string
		factor   float64       // of patience
		answer   error         // of each attempt
		after    time.Duration // when it answers; zero: never
		min, max time.Duration // how long it is waited for
	}{
		{"silent", 1, errors.New("i/o timeout"), 0, bootGrace, bootGrace + 10*time.Second},
		{"silent at first", 1, errors.New("i/o timeout"), 80 * time.Second, 80 * time.Second, 81 * time.Second},
		{"refuses", 1, syscall.ECONNREFUSED, 0, refusedGrace, refusedGrace + 15*time.Second},
		{"refuses at first", 1, syscall.ECONNREFUSED, 100 * time.Second, 100 * time.Second, 101 * time.Second},
		{"silent and slow", 3, errors.New("i/o timeout"), 0, 3 * bootGrace, 3*bootGrace + 10*time.Second},
		{"refuses and slow", 3, syscall.ECONNREFUSED, 0, 3 * refusedGrace, 3*refusedGrace + 15*time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				err := aliveWhile(patience.With(t.Context(), tt.factor), healthyEC2("i-1"), "i-1", func(ctx context.Context) error {
					for tt.after == 0 || time.Since(began) < tt.after {
						select {
						case <-ctx.Done():
							return fmt.Errorf("not ready: %w", tt.answer)
						case <-time.After(100 * time.Millisecond):
						}
					}
					return nil
				})
				if took := time.Since(began); took < tt.min || took > tt.max {
					t.Errorf("ended after %s", took)
				}
				if (err == nil) != (tt.after != 0) {
					t.Errorf("ended with %v", err)
				}
				if blocked := strings.Contains(fmt.Sprint(err), "VPC Block Public Access"); blocked != (err != nil) {
					t.Errorf("what may let no packets through: %v", err)
				}
				if err != nil && !errors.Is(err, tt.answer) {
					t.Errorf("the last condition is missing: %v", err)
				}
			})
		})
	}
}

// bootingShell is a machine that answers after some time.
type bootingShell struct{ takes time.Duration }

func (s bootingShell) WaitReady(context.Context, time.Duration) error {
	time.Sleep(s.takes)
	return nil
}

func (bootingShell) Run(context.Context, remote.Command) (remote.Output, error) {
	return remote.Output{}, errors.New("nothing is to be run")
}

// Only a machine that was started recently and has a host key of its own may still be booting.
func TestAwaitBoot(t *testing.T) {
	for _, tt := range []struct {
		name    string
		started time.Duration // ago
		hostKey string
		waits   time.Duration
	}{
		{"just started", 4 * time.Second, "ssh-ed25519 AAAA", 20 * time.Second},
		{"up for long", refusedGrace + time.Second, "ssh-ed25519 AAAA", 0},
		{"never handed over", 4 * time.Second, "", 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				m := Machine{ID: "i-1", Name: "worker-0", HostKey: tt.hostKey, Started: began.Add(-tt.started)}
				err := AwaitBoot(t.Context(), healthyEC2("i-1"), m, func(Machine, []string) Shell { return bootingShell{20 * time.Second} })
				if err != nil || time.Since(began) != tt.waits {
					t.Errorf("waited %s: %v", time.Since(began), err)
				}
			})
		})
	}
}

// TestAliveTogether: callers that wait for many machines, and have begun at different times, ask
// about all of them in one call.
func TestAliveTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		c := answeringEC2(func(in any) (any, error) {
			calls.Add(1)
			switch call := in.(type) {
			case *ec2.DescribeInstancesInput:
				var running []types.Instance
				for _, id := range call.Filters[0].Values {
					running = append(running, types.Instance{InstanceId: &id, State: &types.InstanceState{Name: types.InstanceStateNameRunning}})
				}
				return &ec2.DescribeInstancesOutput{Reservations: []types.Reservation{{Instances: running}}}, nil
			case *ec2.DescribeInstanceStatusInput:
				return &ec2.DescribeInstanceStatusOutput{}, nil
			}
			return nil, fmt.Errorf("unexpected call %T", in)
		})
		var all sync.WaitGroup
		for n := range 50 {
			all.Go(func() {
				time.Sleep(time.Duration(n) * 37 * time.Millisecond)
				err := awaitShell(t.Context(), c, fmt.Sprint("i-", n), bootingShell{time.Minute})
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := calls.Load(); n < 50 || n > 70 { // two every two seconds
			t.Errorf("%d calls in a minute", n)
		}
	})
}
