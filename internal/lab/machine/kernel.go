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

// A module that machines or what runs on them load by name, with the kernel
// option that says whether it is built in, and a file that exists once it is there.
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
}

// needed are the modules without which a machine cannot be a Kubernetes node.
var needed = []string{"overlay", "br_netfilter", "nf_conntrack", "nf_tables", "veth"}

// kernelRelease is the release that names the directory below /lib/modules.
func kernelRelease() (string, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", err
	}
	return unix.ByteSliceToString(name.Release[:]), nil
}

// presentModules are those of the known modules that the running kernel has,
// built in or loaded.
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

// missingModules are the needed ones that the running kernel lacks.
func missingModules(release string) []string {
	present := presentModules(release)
	return slices.DeleteFunc(slices.Clone(needed), func(name string) bool { return slices.Contains(present, name) })
}

// kernelOptions reads the configuration of the running kernel from where it or
// its distribution publishes it; empty if nowhere.
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

// builtinList is the content of modules.builtin (modprobe(8)) that makes
// modprobe succeed for what is there already.
func builtinList(present []string) []byte {
	var b bytes.Buffer
	for _, name := range present {
		b.WriteString("kernel/" + name + ".ko\n")
	}
	return b.Bytes()
}
