package main

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// The releases of examples/ha-cluster.
const (
	kubernetesVersion = "1.36.4"
	etcdVersion       = artifact.DefaultEtcd
)

// machine is one of the six machines of examples/ha-cluster, with everything that its roles put there. The other
// controllers and the other worker differ from it only in names and addresses.
type machine struct {
	name  string
	parts []component.Machine
}

// machines renders the example: three controllers with etcd, two workers, and a load balancer.
func machines() ([]machine, error) {
	catalog, err := artifact.NewCatalog("", nil, nil)
	if err != nil {
		return nil, err
	}
	set := func(list []artifact.Artifact, err error) []artifact.Artifact {
		for i := range list {
			list[i].SHA256 = strings.Repeat("0", 64) // an apply resolves it
		}
		return list
	}
	cluster := component.Cluster{
		Name: "demo", Domain: component.DefaultDomain, PodCIDR: component.DefaultPodCIDR, ServiceCIDR: component.DefaultServiceCIDR,
		DNSIP: nth(component.DefaultServiceCIDR, 10), NodeCIDRs: []netip.Prefix{netip.MustParsePrefix("10.240.0.0/24")},
		PKI: pki.Ref{Cluster: "demo", Store: pki.StoreSSM, KubernetesCA: "-\n", EtcdCA: "-\n", FrontProxyCA: "-\n", ServiceAccountPublicKey: "-\n"},
	}
	node := func(name string, private, public byte) component.Node {
		return component.Node{Name: name, PrivateIP: netip.AddrFrom4([4]byte{10, 240, 0, private}), PublicIP: netip.AddrFrom4([4]byte{198, 51, 100, public})}
	}
	controllers := []component.Node{node("controller-0", 10, 10), node("controller-1", 11, 11), node("controller-2", 12, 12)}
	worker, lb := node("worker-0", 20, 20), node("lb-0", 4, 4)
	worker.PodCIDR = netip.PrefixFrom(cluster.PodCIDR.Addr(), 24)
	worker.InstanceID = "i-0123456789abcdef0"

	etcd, err1 := component.Etcd(component.EtcdSpec{Cluster: cluster, Version: etcdVersion, Members: controllers, Artifacts: set(catalog.EtcdSet(etcdVersion))}, controllers[0])
	control, err2 := component.ControlPlane(component.ControlPlaneSpec{
		Cluster: cluster, Version: kubernetesVersion, EndpointNames: []string{lb.PublicIP.String(), lb.PrivateIP.String()}, Nodes: controllers,
		EtcdEndpoints: component.EtcdEndpoints(controllers), Artifacts: set(catalog.ControlPlaneSet(kubernetesVersion)),
	}, controllers[0])
	pool, err3 := component.Workers(component.WorkerSpec{
		Cluster: cluster, Version: kubernetesVersion, ControlPlaneEndpoint: "https://" + lb.PrivateIP.String() + ":6443",
		Artifacts: set(catalog.WorkerSet(kubernetesVersion, "", "", "", true)),
	})(worker)
	balancer, err4 := component.LoadBalancer(component.LoadBalancerSpec{Cluster: cluster, Backends: controllers}, lb)
	return []machine{
		{"controller-0", []component.Machine{etcd, control}},
		{"worker-0", []component.Machine{pool}},
		{"lb-0", []component.Machine{balancer}},
	}, errors.Join(err1, err2, err3, err4)
}

func nth(p netip.Prefix, n int) netip.Addr {
	a := p.Addr()
	for range n {
		a = a.Next()
	}
	return a
}

// item is a row of a table: what it is called in words.go, and what the page shows before the words.
type item struct {
	key   string
	cells []string
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(s, "|", "\\|") + "`"
}

func mode(m uint32) string { return fmt.Sprintf("%04o", m) }

// files are the files of a machine that are text, or come from the key store, and those that make modules and
// sysctls last. Certificates, their keys and programs have tables of their own.
func (m machine) files() []item {
	var out []item
	add := func(path, mode, origin string) {
		out = append(out, item{"file " + path, []string{code(path), mode, origin}})
	}
	for _, p := range m.parts {
		for _, f := range p.State.Files {
			add(f.Path, mode(f.Mode), "text")
		}
		for _, s := range p.Secrets {
			add(s.Path, mode(s.Mode), "key store")
		}
		for _, module := range p.State.Modules {
			add("/etc/modules-load.d/k8s-"+module+".conf", mode(0o644), "text")
		}
		for name := range p.State.Sysctls {
			add("/etc/sysctl.d/90-k8s-"+name+".conf", mode(0o644), "text")
		}
	}
	return sorted(out)
}

func (m machine) programs() []item {
	var out []item
	for _, p := range m.parts {
		for _, b := range p.State.Binaries {
			for _, i := range b.Installs {
				out = append(out, item{"program " + i.Path, []string{code(i.Path), b.Version}})
			}
		}
		for _, name := range p.State.Packages {
			out = append(out, item{"package " + name, []string{"Debian's package " + code(name), ""}})
		}
	}
	return sorted(out)
}

func (m machine) directories() []item {
	var out []item
	for _, p := range m.parts {
		for _, d := range p.State.Directories {
			out = append(out, item{"directory " + d.Path, []string{code(d.Path), mode(d.Mode)}})
		}
	}
	return sorted(out)
}

// units has for each unit what restarts and what reloads it.
func (m machine) units() []item {
	var out []item
	for _, p := range m.parts {
		for _, u := range p.State.Units {
			var after string
			if text := m.text("/etc/systemd/system/" + u.Name); text != "" {
				after = strings.Join(slices.DeleteFunc(strings.Fields(valueOf(text, "After")), func(s string) bool { return s == "network-online.target" }), ", ")
			}
			names := func(paths []string) string {
				var out []string
				for _, p := range paths {
					if path.Dir(p) != "/etc/systemd/system" && path.Dir(p) != "/usr/local/bin" { // its own unit and program
						out = append(out, code(p))
					}
				}
				return strings.Join(out, ", ")
			}
			out = append(out, item{"unit " + u.Name, []string{code(u.Name), code(after), names(u.RestartOn), names(u.ReloadOn)}})
		}
	}
	return out
}

// settings are the lines of a machine's units, except what the other tables have.
func (m machine) settings() []item {
	where := map[string][]string{}
	var keys []string
	for _, p := range m.parts {
		for _, u := range p.State.Units {
			text := m.text("/etc/systemd/system/" + u.Name)
			for line := range strings.Lines(text) {
				line = strings.TrimSpace(line)
				name, _, found := strings.Cut(line, "=")
				if !found || strings.HasPrefix(line, "--") || slices.Contains([]string{"Description", "Documentation", "After", "ExecStart"}, name) {
					continue
				}
				if name == "ExecStartPre" || name == "ExecStartPost" || name == "ExecReload" || name == "ExecStop" {
					line = name // the command is in the unit
				}
				if where[line] == nil {
					keys = append(keys, line)
				}
				where[line] = append(where[line], strings.TrimSuffix(u.Name, ".service"))
			}
		}
	}
	var out []item
	for _, k := range keys {
		out = append(out, item{"setting " + k, []string{code(k), strings.Join(where[k], ", ")}})
	}
	return out
}

func (m machine) certificates() []item {
	var out []item
	for _, p := range m.parts {
		for _, c := range p.Certificates {
			r := c.Request
			subject := "CN=" + r.CommonName
			for _, o := range r.Organizations {
				subject += ", O=" + o
			}
			names := slices.Clone(r.DNSNames)
			for _, ip := range r.IPs {
				names = append(names, ip.String())
			}
			var usage []string
			if r.Server {
				usage = append(usage, "server")
			}
			if r.Client {
				usage = append(usage, "client")
			}
			out = append(out, item{"certificate " + c.CertPath, []string{code(c.CertPath), code(path.Base(c.KeyPath)) + " " + mode(c.KeyMode), string(c.CA), code(subject), strings.Join(names, ", "), strings.Join(usage, ", ")}})
		}
	}
	return sorted(out)
}

// flags are those on the command line of a unit.
func (m machine) flags(unit string) []item {
	var out []item
	for line := range strings.Lines(m.text("/etc/systemd/system/" + unit + ".service")) {
		flag, value, found := strings.Cut(strings.TrimSuffix(strings.TrimSpace(line), " \\"), "=")
		if found && strings.HasPrefix(flag, "--") {
			out = append(out, item{"flag " + unit + " " + flag, []string{code(flag), code(value)}})
		}
	}
	return out
}

// fields are those of a configuration file in YAML, by their paths.
func (m machine) fields(file string) ([]item, error) {
	var tree map[string]any
	if err := yaml.Unmarshal([]byte(m.text(file)), &tree); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var out []item
	var walk func(prefix string, v any)
	walk = func(prefix string, v any) {
		if children, ok := v.(map[string]any); ok {
			for k, child := range children {
				walk(strings.TrimPrefix(prefix+"."+k, "."), child)
			}
			return
		}
		if prefix != "apiVersion" && prefix != "kind" {
			out = append(out, item{"field " + path.Base(file) + " " + prefix, []string{code(prefix), code(fmt.Sprint(v))}})
		}
	}
	walk("", tree)
	return sorted(out), nil
}

// text returns the content of a file, or nothing.
func (m machine) text(file string) string {
	for _, p := range m.parts {
		for _, f := range p.State.Files {
			if f.Path == file {
				return string(f.Content)
			}
		}
	}
	return ""
}

func valueOf(unit, key string) string {
	for line := range strings.Lines(unit) {
		if v, found := strings.CutPrefix(strings.TrimSpace(line), key+"="); found {
			return v
		}
	}
	return ""
}

func sorted(items []item) []item {
	slices.SortFunc(items, func(a, b item) int { return strings.Compare(a.key, b.key) })
	return items
}
