package cloudtest

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/vishvananda/netns"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/network"
)

// WithPackets gives a lab a network of real packets, and lets its clock go, ten times as fast as the
// host's.
func WithPackets(t *testing.T) func(*Lab) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	slice, err := network.Claim(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Down(context.WithoutCancel(t.Context()), slice); err != nil {
			t.Error(err)
		}
		if err := network.Release(dir); err != nil {
			t.Error(err)
		}
	})
	packets, err := network.Open(t.Context(), slice)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(packets.Close)
	return func(l *Lab) {
		l.Packets = packets
		go func() {
			for t.Context().Err() == nil {
				time.Sleep(50 * time.Millisecond)
				l.Clock.Advance(500 * time.Millisecond)
			}
		}()
	}
}

// Listen gives an instance its address, and opens a port on it, in its network namespace.
func (l *Lab) Listen(t *testing.T, i types.Instance, port string) net.Listener {
	t.Helper()
	at := l.Packets.InterfaceNetns(*i.NetworkInterfaces[0].NetworkInterfaceId)
	address := *i.PrivateIpAddress
	for _, args := range []string{
		"addr add " + address + "/24 dev ens5", "link set ens5 up", "route add default via " + address[:strings.LastIndex(address, ".")] + ".1",
	} {
		if out, err := exec.CommandContext(t.Context(), "ip", append([]string{"-n", path.Base(at)}, strings.Fields(args)...)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v %s", args, err, out)
		}
	}
	var listener net.Listener
	opened := make(chan error)
	go func() {
		runtime.LockOSThread() // and the thread ends with this goroutine
		ns, err := netns.GetFromPath(at)
		if err == nil {
			defer ns.Close() //nolint:errcheck // read only
			err = netns.Set(ns)
		}
		if err == nil {
			listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp4", ":"+port)
		}
		opened <- err
	}()
	if err := <-opened; err != nil {
		t.Fatal(err)
	}
	return listener
}
