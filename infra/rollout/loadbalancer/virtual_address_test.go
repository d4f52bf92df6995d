package loadbalancer

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote/remotetest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// says fails the test unless the error has all of the words, or is nil if there are none.
func says(t *testing.T, err error, words ...string) {
	t.Helper()
	if (err == nil) != (len(words) == 0) {
		t.Errorf("got %v, wanted %q", err, words)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("got %v, which lacks %q", err, w)
		}
	}
}

// TestAddressTrouble: one machine has the virtual address, and all reach it there.
func TestAddressTrouble(t *testing.T) {
	refused := errors.New("connection refused")
	for name, tt := range map[string]struct {
		views []addressView
		want  []string
	}{
		"fine":   {[]addressView{{"lb-0", false, nil}, {"lb-1", true, nil}}, nil},
		"nobody": {[]addressView{{"lb-0", false, refused}, {"lb-1", false, refused}}, []string{"no machine has 10.240.0.9", "virtual_router_id 7"}},
		"both":   {[]addressView{{"lb-0", true, nil}, {"lb-1", true, nil}}, []string{"lb-0, lb-1 each have 10.240.0.9", "IP protocol 112", "virtual_router_id 7"}},
		"no answer": {[]addressView{{"lb-0", true, nil}, {"lb-1", false, refused}},
			[]string{"lb-0 has 10.240.0.9", "10.240.0.9:6443 does not answer lb-1 (connection refused)", "another machine in this network has the address"}},
	} {
		t.Run(name, func(t *testing.T) {
			says(t, addressTrouble(netip.MustParseAddrPort("10.240.0.9:6443"), 7, tt.views), tt.want...)
		})
	}
}

// TestSteady: a state that is right only for a moment does not count, and a state that stays wrong
// ends the wait.
func TestSteady(t *testing.T) {
	wrong := errors.New("two have it")
	for name, tt := range map[string]struct {
		ask   func(since time.Duration) error
		want  []string
		after time.Duration
	}{
		"right":           {func(time.Duration) error { return nil }, nil, 7 * time.Second},
		"right at last":   {func(since time.Duration) error { return map[bool]error{since < 5*time.Second: wrong}[true] }, nil, 12 * time.Second},
		"right at first":  {func(since time.Duration) error { return map[bool]error{since > 4*time.Second: wrong}[true] }, []string{"not within 45s", "two have it"}, 45 * time.Second},
		"never":           {func(time.Duration) error { return wrong }, []string{"two have it"}, 45 * time.Second},
		"cannot be asked": {func(time.Duration) error { return &remote.UnreachableError{} }, []string{""}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				err := steady(t.Context(), addressBudget, addressSteady, func(context.Context) error { return tt.ask(time.Since(start)) })
				if says(t, err, tt.want...); time.Since(start) != tt.after {
					t.Errorf("it took %s, wanted %s", time.Since(start), tt.after)
				}
			})
		})
	}
}

// TestCheckInterface: a virtual address lies in the network of the machine's own address.
func TestCheckInterface(t *testing.T) {
	for name, tt := range map[string]struct {
		ip, found string
		want      []string
	}{
		"fine":          {"10.240.0.9", "10.240.0.40/24", nil},
		"another one":   {"10.240.1.9", "10.240.0.40/24", []string{"10.240.1.9 does not lie in 10.240.0.0/24", "10.240.0.40"}},
		"the network":   {"10.240.0.0", "10.240.0.40/24", []string{"address of the network 10.240.0.0/24 itself"}},
		"the broadcast": {"10.240.0.255", "10.240.0.40/24", []string{"broadcast address of the network 10.240.0.0/24"}},
		"no interface":  {"10.240.0.9", "", []string{"no interface of the machine has its private_ip 10.240.0.40"}},
		"a host route":  {"10.240.0.9", "10.240.0.40/32", []string{"does not lie in 10.240.0.40/32"}},
	} {
		t.Run(name, func(t *testing.T) {
			found, _ := netip.ParsePrefix(tt.found)
			says(t, checkInterface(netip.MustParseAddr(tt.ip), netip.MustParseAddr("10.240.0.40"), found), tt.want...)
		})
	}
}

// TestVirtualAddressOnMachines asks machines for their network before a change, and for the address after it.
func TestVirtualAddressOnMachines(t *testing.T) {
	t.Parallel()
	ctx := patience.With(t.Context(), 30)
	interfaces := "2: ens5    inet 192.168.1.40/24 brd 192.168.1.255 scope global ens5\n"
	var scripts []string
	server := remotetest.New(t, "lb-0", func(script string) (string, int) {
		scripts = append(scripts, script)
		return interfaces, 0
	})
	var dialled []string
	server.Dial = func(address string) (net.Conn, error) {
		dialled = append(dialled, address)
		return nil, errors.New("Connection refused")
	}
	pool := remote.NewPool(remote.Config{})
	defer pool.Close()
	f := &fleet.Fleet{Pool: pool}
	m := f.Machine(fleet.Target{Host: server.Host, Node: component.Node{Name: "lb-0", PrivateIP: netip.MustParseAddr("192.168.1.40")}})
	x := LoadBalancer{Spec: component.LoadBalancerSpec{VirtualIP: netip.MustParseAddr("192.168.2.3")}}
	changed := []host.Change{{Finding: finding.Finding{Kind: finding.File, Target: "/etc/haproxy/haproxy.cfg"}}}
	o := &rollout.Operation{Fleet: f, Machines: []*rollout.Machine{{Machine: m, Changes: changed}}}
	says(t, x.checkInterfaces(ctx, o), "machine lb-0: check the virtual address 192.168.2.3", "does not lie in 192.168.1.0/24", "nothing has been changed")
	x.Spec.VirtualIP, x.Spec.FormerIPs = netip.MustParseAddr("192.168.1.3"), []netip.Addr{netip.MustParseAddr("192.168.2.3")}
	says(t, x.checkInterfaces(ctx, o), "192.168.2.3 does not lie in 192.168.1.0/24")
	x.Spec.FormerIPs = nil
	says(t, x.checkInterfaces(ctx, o))

	address := netip.MustParseAddrPort("192.168.1.3:6443")
	// A new address that another machine has is refused, and a former address of the cluster is
	// not.
	interfaces = ""
	says(t, x.checkFree(ctx, o, nil), "another machine in the network has 192.168.1.3 already", "nothing has been changed")
	says(t, x.checkFree(ctx, o, x))
	free := server.Dial
	server.Dial = func(string) (net.Conn, error) { return nil, errors.New("No route to host") }
	says(t, x.checkFree(ctx, o, nil))
	interfaces, server.Dial, dialled = "2: ens5    inet 192.168.1.3/32 scope global ens5\n", free, nil
	says(t, x.checkFree(ctx, o, nil))
	v, err := x.viewAddress(ctx, m, address)
	if err != nil || !v.holds || v.err == nil || len(dialled) != 1 || dialled[0] != "192.168.1.3:6443" || !strings.Contains(scripts[len(scripts)-1], "address show to 192.168.1.3") {
		t.Errorf("view %+v, %v, dialled %q, scripts %q", v, err, dialled, scripts)
	}
	// Connections that the packet filter of the other machines drops are not tried.
	interfaces, x.Spec.AllowedCIDRs = "", []netip.Prefix{netip.MustParsePrefix("192.168.1.100/32")}
	if v, err := x.viewAddress(ctx, m, address); err != nil || v.holds || v.err != nil || len(dialled) != 1 {
		t.Errorf("view %+v, %v, dialled %q", v, err, dialled)
	}
}
