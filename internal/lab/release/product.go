package release

import (
	"fmt"
	"path"
	"strings"
)

// product is one upstream release: where its files lie in the mirror, and how they are built when
// upstream cannot be reached. Its printed form, field names included, identifies the recipe (see
// recipe).
type product struct {
	name    string
	version string

	// base is the directory of the files. With "https://" before it, it is their URL upstream.
	base string
	// archive is the name of the archive that holds all programs, in its directory inside. If
	// empty, each program is a file.
	archive string
	inside  string
	// published says whether upstream serves these files. sums says where their checksums are: a
	// suffix to the file's name if it starts with a dot, else a file in the same directory.
	// bareSums is the style of dl.k8s.io, a checksum without the file's name.
	published bool
	sums      string
	bareSums  bool

	modules []module
	source  string
	debian  []debianFile
}

// module is a Go module and the commands to build from it.
type module struct {
	path    string
	version string
	// staging is the version of the required modules that the module replaces with directories of
	// its repository.
	staging  string
	programs []program
	// vars are linker variables. {time} and {commit} are replaced by the tag's.
	vars   []string
	tags   []string
	static staticLibrary
}

// staticLibrary is a C library to link statically, from a Debian development package.
type staticLibrary struct{ name, debian string }

type program struct{ name, pkg string }

// debianFile is one file of a Debian package.
type debianFile struct{ name, pkg, member string }

// files lists the product's files, relative to the mirror.
func (p product) files() []string {
	if p.archive != "" {
		return []string{path.Join(p.base, p.archive)}
	}
	var files []string
	for _, name := range p.programs() {
		files = append(files, path.Join(p.base, name))
	}
	return files
}

func (p product) programs() []string {
	var names []string
	for _, m := range p.modules {
		for _, prog := range m.programs {
			names = append(names, prog.name)
		}
	}
	if p.source != "" {
		names = append(names, p.name)
	}
	for _, f := range p.debian {
		names = append(names, f.name)
	}
	return names
}

// sumsFile returns the file in which upstream publishes the checksum of file, relative to the
// mirror.
func (p product) sumsFile(file string) string {
	if strings.HasPrefix(p.sums, ".") {
		return file + p.sums
	}
	return path.Join(path.Dir(file), p.sums)
}

// title returns the product's name for progress lines and errors.
func (p product) title() string { return title(p.name, p.programs(), p.version) }

func title(name string, programs []string, version string) string {
	if len(programs) > 6 {
		programs = []string{name}
	}
	return strings.Join(programs, ", ") + " " + version
}

func mirrorProducts(v Versions) []product {
	var products []product
	for _, tag := range v.Kubernetes {
		products = append(products, kubernetesProduct(tag))
	}
	for _, tag := range v.Etcd {
		products = append(products, etcdProduct(tag))
	}
	for _, tag := range v.Containerd {
		products = append(products, containerdProduct(tag))
	}
	return append(products, cniProduct(), runcProduct())
}

func kubernetesModule(version string) module {
	return module{path: "k8s.io/kubernetes", version: version, staging: "v0" + strings.TrimPrefix(version, "v1")}
}

func kubernetesProduct(version string) product {
	m := kubernetesModule(version)
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet", "kube-proxy", "kubectl"} {
		m.programs = append(m.programs, program{name, m.path + "/cmd/" + name})
	}
	major, minor, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		m.vars = append(m.vars,
			pkg+".gitVersion="+version, pkg+".gitMajor="+major, pkg+".gitMinor="+minor,
			pkg+".gitTreeState=clean", pkg+".gitCommit={commit}", pkg+".buildDate={time}")
	}
	return product{
		name: "kubernetes", version: version,
		base:      fmt.Sprintf("dl.k8s.io/release/%s/bin/%s/%s", version, goos, goarch),
		published: true, sums: ".sha256", bareSums: true,
		modules: []module{m},
	}
}

func etcdProduct(version string) product {
	name := fmt.Sprintf("etcd-%s-%s-%s", version, goos, goarch)
	mod := func(prog, path string) module {
		return module{
			path: path, version: version,
			programs: []program{{prog, path}},
			vars:     []string{"go.etcd.io/etcd/api/v3/version.GitSHA={commit}"},
		}
	}
	return product{
		name: "etcd", version: version,
		base:    "github.com/etcd-io/etcd/releases/download/" + version,
		archive: name + ".tar.gz", inside: name,
		published: true, sums: "SHA256SUMS",
		modules: []module{
			mod("etcd", "go.etcd.io/etcd/server/v3"),
			mod("etcdctl", "go.etcd.io/etcd/etcdctl/v3"),
			mod("etcdutl", "go.etcd.io/etcd/etcdutl/v3"),
		},
	}
}

func containerdProduct(version string) product {
	const path = "github.com/containerd/containerd/v2"
	m := module{
		path: path, version: version,
		vars: []string{path + "/version.Version=" + version, path + "/version.Revision={commit}"},
		tags: []string{"urfave_cli_no_docs", "osusergo", "netgo", "static_build"},
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		m.programs = append(m.programs, program{name, path + "/cmd/" + name})
	}
	return product{
		name: "containerd", version: version,
		base:    "github.com/containerd/containerd/releases/download/" + version,
		archive: fmt.Sprintf("containerd-%s-%s-%s.tar.gz", strings.TrimPrefix(version, "v"), goos, goarch), inside: "bin",
		published: true, sums: ".sha256sum",
		modules: []module{m},
	}
}

// cniPlugins are the plugins of upstream's Linux release, by directory.
var cniPlugins = []string{
	"ipam/dhcp", "ipam/host-local", "ipam/static",
	"main/bridge", "main/dummy", "main/host-device", "main/ipvlan", "main/loopback", "main/macvlan", "main/ptp", "main/tap", "main/vlan",
	"meta/bandwidth", "meta/firewall", "meta/portmap", "meta/sbr", "meta/tuning", "meta/vrf",
}

func cniProduct() product {
	const module_ = "github.com/containernetworking/plugins"
	m := module{
		path: module_, version: CNIVersion,
		vars: []string{module_ + "/pkg/utils/buildversion.BuildVersion=" + CNIVersion},
	}
	for _, dir := range cniPlugins {
		m.programs = append(m.programs, program{path.Base(dir), module_ + "/plugins/" + dir})
	}
	return product{
		name: "CNI plugins", version: CNIVersion,
		base:    "github.com/containernetworking/plugins/releases/download/" + CNIVersion,
		archive: fmt.Sprintf("cni-plugins-%s-%s-%s.tgz", goos, goarch, CNIVersion), inside: ".",
		published: true, sums: ".sha256",
		modules: []module{m},
	}
}

// runcProduct needs a C compiler, since runc enters namespaces before the Go runtime starts. It is
// linked statically with libseccomp, as upstream's is, so that it runs on any distribution.
func runcProduct() product {
	const path = "github.com/opencontainers/runc"
	return product{
		name: "runc", version: RuncVersion,
		base:      "github.com/opencontainers/runc/releases/download/" + RuncVersion,
		published: true, sums: "runc.sha256sum",
		modules: []module{{
			path: path, version: RuncVersion,
			programs: []program{{"runc.amd64", path}},
			vars:     []string{"main.gitCommit={commit}"},
			tags:     []string{"seccomp", "urfave_cli_no_docs", "netgo", "osusergo"},
			static:   staticLibrary{name: "seccomp", debian: "libseccomp-dev"},
		}},
	}
}

func toolProducts() []product {
	const path = "github.com/opentofu/opentofu"
	return []product{{
		name: "OpenTofu", version: OpenTofuVersion,
		modules: []module{{
			path: path, version: OpenTofuVersion,
			programs: []program{{"tofu", path + "/cmd/tofu"}},
			vars:     []string{path + "/version.dev=no"},
		}},
	}}
}

func gatewayProduct() product {
	const path = "github.com/versity/versitygw"
	return product{name: "versitygw", version: GatewayVersion, modules: []module{{
		path: path, version: GatewayVersion,
		programs: []program{{gatewayProgram, path + "/cmd/versitygw"}},
		vars:     []string{"main.Version=" + GatewayVersion},
	}}}
}

// coreDNSProduct returns a release of CoreDNS. The store has its program in the directory base, so that it can have
// several releases.
func coreDNSProduct(version, base string) product {
	const path = "github.com/coredns/coredns"
	return product{name: "CoreDNS", version: version, base: base, modules: []module{{
		path: path, version: version,
		programs: []program{{"coredns", path}},
		vars:     []string{path + "/coremain.GitCommit={commit}"},
	}}}
}

func metricsServerProduct() product {
	const path = "sigs.k8s.io/metrics-server"
	m := module{
		path: path, version: MetricsServerVersion,
		programs: []program{{"metrics-server", path + "/cmd/metrics-server"}},
	}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		m.vars = append(m.vars, pkg+".gitVersion="+MetricsServerVersion, pkg+".gitCommit={commit}", pkg+".buildDate={time}")
	}
	return product{name: "metrics-server", version: MetricsServerVersion, modules: []module{m}}
}

func cloudControllersProduct() product {
	const path = "k8s.io/cloud-provider-aws"
	return product{name: "cloud-controller-manager", version: CloudControllersVersion, modules: []module{{
		path: path, version: CloudControllersVersion,
		programs: []program{{"aws-cloud-controller-manager", path + "/cmd/aws-cloud-controller-manager"}},
		vars:     []string{"k8s.io/component-base/version.gitVersion=" + CloudControllersVersion},
	}}}
}

// localPathProduct is the provisioner with the programs of the shell scripts that its helper pods run.
func localPathProduct() product {
	const path = "github.com/rancher/local-path-provisioner"
	return product{name: "local-path-provisioner", version: LocalPathVersion, debian: busyboxProduct().debian, modules: []module{{
		path: path, version: LocalPathVersion, programs: []program{{"local-path-provisioner", path}}, vars: []string{"main.VERSION=" + LocalPathVersion},
	}}}
}

// traefikProduct has no files for its dashboard, since they are not in the module.
func traefikProduct() product {
	const path = "github.com/traefik/traefik/v3"
	return product{name: "Traefik", version: TraefikVersion, modules: []module{{
		path: path, version: TraefikVersion,
		programs: []program{{"traefik", path + "/cmd/traefik"}},
		vars:     []string{path + "/pkg/version.Version=" + TraefikVersion[1:]},
	}}}
}

func agnhostProduct() product {
	m := kubernetesModule(KubernetesVersion)
	m.programs = []program{{"agnhost", m.path + "/test/images/agnhost"}}
	m.vars = []string{"main.Version=" + AgnhostVersion}
	return product{name: "agnhost", version: AgnhostVersion, modules: []module{m}}
}

func pauseProduct() product {
	return product{name: "pause", version: PauseVersion, source: pauseSource}
}

func busyboxProduct() product {
	return product{name: "busybox", version: "from Debian", debian: []debianFile{
		{name: "busybox", pkg: "busybox", member: "*bin/busybox"},
		{name: "libc.so.6", pkg: "libc6", member: "lib/x86_64-linux-gnu/libc.so.6"},
		{name: "libresolv.so.2", pkg: "libc6", member: "lib/x86_64-linux-gnu/libresolv.so.2"},
		{name: "ld-linux-x86-64.so.2", pkg: "libc6", member: "lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"},
	}}
}
