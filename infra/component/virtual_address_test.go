package component

import (
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
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
		"script": string(virtualAddressScript), "template": "interface @INTERFACE@\ndev @INTERFACE@\n",
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

// TestCheckVirtualAddress checks the rules for machines that share an address.
func TestCheckVirtualAddress(t *testing.T) {
	for name, tt := range map[string]struct {
		vip, field, want string
		port             int
		standby          Node
	}{
		"fine":            {vip: "10.240.0.9", standby: lb1},
		"no address":      {field: "virtual_ip", want: "standbys need virtual_ip", standby: lb1},
		"of the machine":  {vip: "10.240.0.40", field: "virtual_ip", want: "is the private_ip of lb-0", standby: lb1},
		"of the standby":  {vip: "10.240.0.41", field: "virtual_ip", want: "is the private_ip of lb-1", standby: lb1},
		"of a controller": {vip: "10.240.0.11", field: "virtual_ip", want: "is the private_ip of controller-1", standby: lb1},
		"twice":           {vip: "10.240.0.9", field: "standbys[0].private_ip", want: "lb-0 is listed twice", standby: lb0},
		"the port in use": {vip: "10.240.0.9", port: 8405, field: "port", want: "choose another one", standby: lb1},
		"not all known":   {vip: "10.240.0.9", standby: Node{}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := loadBalancerSpec()
			spec.Port = tt.port
			if tt.vip != "" {
				spec.VirtualIP = netip.MustParseAddr(tt.vip)
			}
			errs := spec.CheckMachines([]Host{{Node: lb0}, {Node: tt.standby}}, true)
			if tt.want == "" && len(errs) == 0 {
				return
			}
			if len(errs) != 1 || tt.want == "" || errs[0].Field != tt.field || !strings.Contains(errs[0].Err.Error(), tt.want) {
				t.Errorf("got %v", errs.Err())
			}
		})
	}
}
