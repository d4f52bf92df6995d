package component

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

var (
	virtualIP = netip.MustParseAddr("10.240.0.9")
	lb1       = node("lb-1", "10.240.0.41", "", "")
)

// TestVirtualAddress compares the files of two load balancers that share an address.
func TestVirtualAddress(t *testing.T) {
	spec := loadBalancerSpec()
	spec.VirtualIP, spec.Machines = virtualIP, []Node{lb0, lb1}
	goldenMachine(t, "loadbalancer-virtual", must(t)(LoadBalancer(spec, lb0)))
	other := fileOf(t, must(t)(LoadBalancer(spec, lb1)), VirtualAddressConfig)
	for _, want := range []string{"priority 199", "unicast_src_ip 10.240.0.41", "unicast_peer {\n        10.240.0.40\n    }"} {
		if !strings.Contains(other, want) {
			t.Errorf("lb-1 lacks %q:\n%s", want, other)
		}
	}
	spec.Machines = spec.Machines[:1]
	if alone := fileOf(t, must(t)(LoadBalancer(spec, lb0)), VirtualAddressConfig); strings.Contains(alone, "unicast") {
		t.Errorf("a machine alone has peers:\n%s", alone)
	}
}

// TestVirtualAddressScript runs the script that writes the configuration and asks HAProxy.
func TestVirtualAddressScript(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for name, content := range map[string]string{
		"script": strings.Replace(string(virtualAddressScript), "read -r -t 1 ", "read -r -t 60 ", 1), "template": "interface @INTERFACE@\ndev @INTERFACE@\n",
		"ip": "#!/bin/sh\n[ \"$*\" = '-4 -o address show to 10.240.0.40' ] && echo '7: ens5@if3    inet 10.240.0.40/24 brd 10.240.0.255 scope global ens5'\n",
	} {
		if err := os.WriteFile(path(name), []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	run := func(args ...string) (string, error) {
		cmd := exec.CommandContext(t.Context(), path("script"), args...)
		cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH")}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := run("configure", "10.240.0.40", path("template"), path("file")); err != nil {
		t.Fatal(err, out)
	}
	if got, _ := os.ReadFile(path("file")); string(got) != "interface ens5\ndev ens5\n" {
		t.Errorf("configuration %q", got)
	}
	if out, err := run("configure", "10.240.0.99", path("template"), path("file")); err == nil || !strings.Contains(out, "no interface of this machine has the address 10.240.0.99") {
		t.Errorf("without an interface: %q, %v", out, err)
	}

	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var status atomic.Int64
	status.Store(http.StatusOK)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/alive" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		w.WriteHeader(int(status.Load()))
	})}
	go func() { _ = server.Serve(listener) }()
	port := strconv.Itoa(listener.Addr().(*net.TCPAddr).Port)
	if out, err := run("check", port); err != nil {
		t.Errorf("check of a working server: %v %s", err, out)
	}
	status.Store(http.StatusServiceUnavailable)
	if _, err := run("check", port); err == nil {
		t.Error("check accepts any answer")
	}
	_ = server.Close()
	if _, err := run("check", port); err == nil {
		t.Error("check accepts no answer")
	}
}

// TestFormerVirtualAddresses are beside the virtual address, and are read back.
func TestFormerVirtualAddresses(t *testing.T) {
	spec := loadBalancerSpec()
	spec.VirtualIP, spec.Machines = virtualIP, []Node{lb0, lb1}
	spec.FormerIPs = []netip.Addr{netip.MustParseAddr("10.240.0.8"), netip.MustParseAddr("10.240.0.7")}
	m := must(t)(LoadBalancer(spec, lb0))
	const want = `    virtual_ipaddress {
        10.240.0.9/32 dev @INTERFACE@
    }
    virtual_ipaddress_excluded {
        10.240.0.8/32 dev @INTERFACE@
        10.240.0.7/32 dev @INTERFACE@
    }
`
	if got := fileOf(t, m, VirtualAddressConfig); !strings.Contains(got, want) {
		t.Errorf("configuration\n%s", got)
	}
	if found, err := loadBalancerSpec().Read(foundOf(m)); err != nil || found.VirtualIP != virtualIP || !slices.Equal(found.FormerIPs, spec.FormerIPs) {
		t.Errorf("read %s and %s (%v)", found.VirtualIP, found.FormerIPs, err)
	}
}

// TestCheckVirtualAddress checks the rules for machines that share an address.
func TestCheckVirtualAddress(t *testing.T) {
	onController := node("lb-1", "10.240.0.11", "", "")
	for name, tt := range map[string]struct {
		vip, former, field, want string
		port                     int
		standby                  Node
		address                  string
	}{
		"fine":              {vip: "10.240.0.9", former: "10.240.0.8", standby: lb1},
		"no address":        {field: "virtual_ip", want: "standbys need virtual_ip", standby: lb1},
		"of the machine":    {vip: "10.240.0.40", field: "virtual_ip", want: "is the private_ip of lb-0", standby: lb1},
		"of the standby":    {vip: "10.240.0.41", field: "virtual_ip", want: "is the private_ip of lb-1", standby: lb1},
		"its SSH address":   {vip: "10.240.0.41", field: "virtual_ip", want: "is the address of lb-1", standby: Node{Name: "lb-1"}, address: "10.240.0.41"},
		"of a controller":   {vip: "10.240.0.11", field: "virtual_ip", want: "is the private_ip of controller-1", standby: lb1},
		"of no machine":     {vip: "224.0.0.18", field: "virtual_ip", want: "not an address that a machine can have", standby: lb1},
		"former of one":     {vip: "10.240.0.9", former: "10.240.0.41", field: "former_virtual_ips[0]", want: "is the private_ip of lb-1", standby: lb1},
		"former is present": {vip: "10.240.0.9", former: "10.240.0.9", field: "former_virtual_ips[0]", want: "given twice", standby: lb1},
		"twice":             {vip: "10.240.0.9", field: "standbys[0].private_ip", want: "lb-0 is listed twice", standby: lb0},
		"the port in use":   {vip: "10.240.0.9", port: 8405, field: "port", want: "choose another one", standby: lb1},
		"on a controller":   {vip: "10.240.0.9", field: "port", want: "lb-1, 10.240.0.11, is the machine of the controller controller-1, which uses port 6443 itself", standby: onController},
		"its manager":       {vip: "10.240.0.9", port: 10257, field: "port", want: "uses port 10257 itself", standby: onController},
		"another port":      {vip: "10.240.0.9", port: 7443, standby: onController},
		"not all known":     {vip: "10.240.0.9", standby: Node{}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := loadBalancerSpec()
			spec.Port = tt.port
			if tt.vip != "" {
				spec.VirtualIP = netip.MustParseAddr(tt.vip)
			}
			if tt.former != "" {
				spec.FormerIPs = []netip.Addr{netip.MustParseAddr(tt.former)}
			}
			errs := spec.CheckMachines([]Host{{Node: lb0}, {Node: tt.standby, Address: tt.address}}, true)
			if tt.want == "" && len(errs) == 0 {
				return
			}
			if len(errs) != 1 || tt.want == "" || errs[0].Field != tt.field || !strings.Contains(errs[0].Err.Error(), tt.want) {
				t.Errorf("got %v", errs.Err())
			}
		})
	}
	for every, want := range map[time.Duration]string{0: "", MinCheckInterval: "", MaxCheckInterval: "", 999 * time.Millisecond: "at least 1s", 8001 * time.Millisecond: "at most 8s", 2001 * time.Millisecond: "", 1500500 * time.Microsecond: "milliseconds"} {
		spec := loadBalancerSpec()
		spec.CheckInterval = every
		errs := spec.CheckMachines([]Host{{Node: lb0}}, false)
		if want == "" && len(errs) > 0 || want != "" && (len(errs) != 1 || errs[0].Field != "check_interval" || !strings.Contains(errs[0].Err.Error(), want)) {
			t.Errorf("checks every %s: %v", every, errs.Err())
		}
	}
	alone := loadBalancerSpec()
	alone.FormerIPs = []netip.Addr{virtualIP}
	if errs := alone.CheckMachines([]Host{{Node: lb0}}, false); len(errs) != 1 || !errs[0].Missing {
		t.Errorf("a former address alone: %v", errs.Err())
	}
}
