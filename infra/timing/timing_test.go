package timing

import (
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// TestBusy: the busy time counts overlapping calls once, and the sum of durations counts each.
func TestBusy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := New()
		var calls sync.WaitGroup
		for range 3 {
			calls.Go(func() {
				defer r.Start(t.Context(), "EC2 DescribeInstances")()
				time.Sleep(20 * time.Millisecond)
			})
		}
		calls.Wait()
		time.Sleep(time.Second)
		end := r.Start(t.Context(), "EC2 DescribeVolumes")
		time.Sleep(10 * time.Millisecond)
		end()
		end() // counts once
		r.Add("start init", 30*time.Millisecond)
		if n := r.Calls("EC2 DescribeInstances"); n != 3 {
			t.Errorf("%d calls", n)
		}
		if n := r.Calls("EC2"); n != 4 {
			t.Errorf("%d calls of the kind", n)
		}
		want := []string{
			"calls busy ms sum ms KiB out KiB in",
			"EC2 4 30.0 70.0",
			"DescribeInstances 3 20.0 60.0",
			"DescribeVolumes 1 10.0 10.0",
			"start 1 30.0 30.0",
			"init 1 30.0 30.0",
		}
		for i, line := range strings.Split(strings.TrimSpace(r.Table()), "\n") {
			if got := strings.Join(strings.Fields(line), " "); i >= len(want) || got != want[i] {
				t.Errorf("line %d is %q", i, got)
			}
		}
	})
}

// TestBytes counts what goes through a connection.
func TestBytes(t *testing.T) {
	t.Parallel()
	r := New()
	near, far := net.Pipe()
	near = r.Count("SSH", near)
	r.Add("SSH handshake", 0)
	go func() {
		_, _ = far.Read(make([]byte, 2048))
		_, _ = far.Write(make([]byte, 512))
	}()
	if _, err := near.Write(make([]byte, 2048)); err != nil {
		t.Fatal(err)
	}
	if n, err := near.Read(make([]byte, 1024)); n != 512 || err != nil {
		t.Fatal(n, err)
	}
	if line := strings.Fields(strings.Split(r.Table(), "\n")[1]); line[4] != "2.0" || line[5] != "0.5" {
		t.Errorf("%q", line)
	}
}

// TestOff: without a Recorder nothing is recorded, and nothing fails.
func TestOff(t *testing.T) {
	t.Parallel()
	var r *Recorder
	r.Start(t.Context(), "EC2 x")()
	ctx, end := r.Call(t.Context(), "Terraform x")
	_, over := Begin(ctx, "machine x")
	over()
	end()
	r.Add("EC2 x", time.Second)
	conn, _ := net.Pipe()
	if r.Count("SSH", conn) != conn || r.Table() != "" || r.Path() != "" || r.Calls("EC2") != 0 {
		t.Error("something was recorded")
	}
}
