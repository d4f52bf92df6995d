package main

import (
	"slices"
	"strconv"
	"strings"
)

// port is one on which something listens on every machine of a kind. Where a flag or a configuration sets it, the
// rendered text must have it: see TestPorts. The end-to-end test of the main job compares all of them with what
// really listens.
type port struct {
	machine string
	address string // "all" for every address of the machine, "own" for its private one
	number  int    // 0 if the kernel chooses it
	program string
	file    string // the rendered file that sets the port; empty if it is the program's default
	text    string // what the file says
}

var allPorts = []port{
	{"controller-0", "all", 6443, "kube-apiserver", "/etc/systemd/system/kube-apiserver.service", "--secure-port=6443"},
	{"controller-0", "own and 127.0.0.1", 2379, "etcd", "/etc/systemd/system/etcd.service", "--listen-client-urls=https://10.240.0.10:2379,https://127.0.0.1:2379"},
	{"controller-0", "own", 2380, "etcd", "/etc/systemd/system/etcd.service", "--listen-peer-urls=https://10.240.0.10:2380"},
	{"controller-0", "127.0.0.1", 2381, "etcd", "/etc/systemd/system/etcd.service", "--listen-metrics-urls=http://127.0.0.1:2381"},
	{"controller-0", "127.0.0.1", 10257, "kube-controller-manager", "/etc/systemd/system/kube-controller-manager.service", "--bind-address=127.0.0.1"},
	{"controller-0", "127.0.0.1", 10259, "kube-scheduler", "/etc/systemd/system/kube-scheduler.service", "--bind-address=127.0.0.1"},
	{"controller-0", "all", 22, "sshd", "", ""},
	{"worker-0", "all", 10250, "kubelet", "", ""},
	{"worker-0", "127.0.0.1", 10248, "kubelet", "", ""},
	{"worker-0", "all", 10256, "kube-proxy", "", ""},
	{"worker-0", "127.0.0.1", 10249, "kube-proxy", "", ""},
	{"worker-0", "127.0.0.1", 0, "containerd", "", ""},
	{"worker-0", "all", 22, "sshd", "", ""},
	{"lb-0", "all", 6443, "haproxy", "/etc/haproxy/haproxy.cfg", "bind *:6443"},
	{"lb-0", "all", 22, "sshd", "", ""},
}

func (m machine) ports() []item {
	var out []item
	for _, p := range allPorts {
		if p.machine == m.name {
			number := "any"
			if p.number != 0 {
				number = strconv.Itoa(p.number)
			}
			out = append(out, item{"port " + m.name + " " + number, []string{p.address, number, p.program}})
		}
	}
	slices.SortFunc(out, func(a, b item) int { return strings.Compare(a.key, b.key) })
	return out
}

// leases are in the API, so nothing renders them. The end-to-end test of the main job compares them.
var leases = []item{
	{"lease kube-controller-manager", []string{"kube-system", "`kube-controller-manager`"}},
	{"lease kube-scheduler", []string{"kube-system", "`kube-scheduler`"}},
	{"lease apiserver", []string{"kube-system", "`apiserver-…`"}},
	{"lease node", []string{"kube-node-lease", "`worker-…`"}},
}
