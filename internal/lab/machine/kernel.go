package machine

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A module is a kernel module that machines, or programs on them, load by name. option is the
// kernel option that says whether it is built in, path a file that exists when it is loaded.
type module struct{ name, option, path string }

var modules = []module{
	{"overlay", "CONFIG_OVERLAY_FS", "/sys/module/overlay"},
	{"br_netfilter", "CONFIG_BRIDGE_NETFILTER", "/proc/sys/net/bridge"},
	{"bridge", "CONFIG_BRIDGE", "/sys/module/bridge"},
	{"veth", "CONFIG_VETH", "/sys/module/veth"},
	{"vxlan", "CONFIG_VXLAN", "/sys/module/vxlan"},
	{"dummy", "CONFIG_DUMMY", "/sys/module/dummy"},
	{"nf_conntrack", "CONFIG_NF_CONNTRACK", "/proc/sys/net/netfilter"},
	{"nf_tables", "CONFIG_NF_TABLES", "/sys/module/nf_tables"},
	{"nf_nat", "CONFIG_NF_NAT", "/sys/module/nf_nat"},
	{"ip_tables", "CONFIG_IP_NF_IPTABLES", "/sys/module/ip_tables"},
	{"iptable_nat", "CONFIG_IP_NF_NAT", "/sys/module/iptable_nat"},
	{"iptable_filter", "CONFIG_IP_NF_FILTER", "/sys/module/iptable_filter"},
	{"ip_set", "CONFIG_IP_SET", "/sys/module/ip_set"},
	{"ip_vs", "CONFIG_IP_VS", "/sys/module/ip_vs"},
	{"xt_conntrack", "CONFIG_NETFILTER_XT_MATCH_CONNTRACK", "/sys/module/xt_conntrack"},
	{"fuse", "CONFIG_FUSE_FS", "/sys/module/fuse"},
	{"tun", "CONFIG_TUN", "/sys/module/tun"},
	{"sch_ingress", "CONFIG_NET_SCH_INGRESS", "/sys/module/sch_ingress"},
	{"cls_u32", "CONFIG_NET_CLS_U32", "/sys/module/cls_u32"},
	{"act_mirred", "CONFIG_NET_ACT_MIRRED", "/sys/module/act_mirred"},
	{"loop", "CONFIG_BLK_DEV_LOOP", "/sys/module/loop"},
}

// needed are the kernel modules without which a machine cannot run, or a container cannot be a
// Kubernetes node.
var needed = map[Kind][]string{
	Container:      {"overlay", "br_netfilter", "nf_conntrack", "nf_tables", "veth", "fuse", "loop"},
	VirtualMachine: {"nf_conntrack", "nf_tables", "veth", "tun", "sch_ingress", "cls_u32", "act_mirred"},
}

// kernelRelease returns the kernel's release, which is also its directory's name in /lib/modules.
func kernelRelease() (string, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", err
	}
	return unix.ByteSliceToString(name.Release[:]), nil
}

// presentModules returns those of modules that are built into the running kernel or loaded.
func presentModules(release string) []string {
	options := kernelOptions(release)
	var present []string
	for _, m := range modules {
		_, err := os.Stat(m.path)
		if err == nil || options[m.option] == "y" {
			present = append(present, m.name)
		}
	}
	return present
}

// missingModules returns the needed modules that are not present.
func missingModules(release string, kind Kind) []string {
	present := presentModules(release)
	return slices.DeleteFunc(slices.Clone(needed[kind]), func(name string) bool { return slices.Contains(present, name) })
}

// kernelOptions reads the configuration of the running kernel from /proc or /boot. It is empty if
// there is none.
func kernelOptions(release string) map[string]string {
	content, err := os.ReadFile("/proc/config.gz")
	if err == nil {
		r, err := gzip.NewReader(bytes.NewReader(content))
		if err != nil {
			return nil
		}
		if content, err = io.ReadAll(r); err != nil {
			return nil
		}
	} else if content, err = os.ReadFile(filepath.Join("/boot", "config-"+release)); err != nil {
		return nil
	}
	options := map[string]string{}
	lines := bufio.NewScanner(bytes.NewReader(content))
	for lines.Scan() {
		if name, value, ok := strings.Cut(lines.Text(), "="); ok {
			options[name] = value
		}
	}
	return options
}

// builtinList returns the content of modules.builtin with which modprobe(8) succeeds for modules
// that are present.
func builtinList(present []string) []byte {
	var b bytes.Buffer
	for _, name := range present {
		b.WriteString("kernel/" + name + ".ko\n")
	}
	return b.Bytes()
}
