package component

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/pelletier/go-toml/v2"
	kubeletconfig "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// Found is what was read of one machine: contents of files, by path.
type Found map[string][]byte

// The Read functions are the opposite of Etcd, ControlPlane, Worker and
// LoadBalancer: they tell, from what is on one machine, the settings it was
// made with. A setting is what differs from what this package writes without
// it, so a setting that says what is so anyway leaves no trace.

// PathsEtcd are the files that ReadEtcd looks at.
func PathsEtcd() []string { return []string{unitPath(EtcdUnit)} }

// ReadEtcd returns the extra arguments of a member.
func ReadEtcd(spec EtcdSpec, n Node, f Found) (EtcdSpec, error) {
	m, err := Etcd(spec, n)
	if err == nil {
		spec.ExtraArgs = argsBeyond(f, m, EtcdUnit)
	}
	return spec, err
}

// PathsControlPlane are the files that ReadControlPlane looks at.
func PathsControlPlane() []string {
	return []string{unitPath(APIServerUnit), unitPath(ControllerManagerUnit), unitPath(SchedulerUnit),
		AuditPolicyPath, AdmissionPath, SchedulerConfigPath, certPath("apiserver")}
}

// ControlPlaneNetworks returns what a controller's command lines say of the
// cluster: pod and service networks and the domain; empty where they say nothing.
func ControlPlaneNetworks(f Found) (pods, services, domain string) {
	manager, server := flagsOf(f[unitPath(ControllerManagerUnit)]), flagsOf(f[unitPath(APIServerUnit)])
	domain = strings.TrimPrefix(server.last("service-account-issuer"), "https://kubernetes.default.svc.")
	return manager.last("cluster-cidr"), server.last("service-cluster-ip-range"), domain
}

// ReadControlPlane returns the settings of a controller. The spec's networks,
// endpoints and nodes must be given.
func ReadControlPlane(spec ControlPlaneSpec, n Node, f Found) (ControlPlaneSpec, error) {
	if policy := f[AuditPolicyPath]; policy != nil {
		standard, err := auditFile(nil)
		if err != nil {
			return spec, err
		}
		if !bytes.Equal(policy, standard.Content) {
			spec.AuditPolicy = policy
		}
	}
	if admission := f[AdmissionPath]; admission != nil {
		var config struct {
			Plugins []struct {
				Name          string         `json:"name"`
				Configuration map[string]any `json:"configuration"`
			} `json:"plugins"`
		}
		if err := yaml.Unmarshal(admission, &config); err != nil {
			return spec, fmt.Errorf("%s: %w", AdmissionPath, err)
		}
		spec.AdmissionPlugins = map[string]map[string]any{}
		for _, p := range config.Plugins {
			spec.AdmissionPlugins[p.Name] = p.Configuration
		}
	}
	m, err := ControlPlane(spec, n)
	if err != nil {
		return spec, err
	}
	if spec.SchedulerConfig, err = yamlBeyond(f, m, SchedulerConfigPath); err != nil {
		return spec, err
	}
	spec.APIServerArgs = argsBeyond(f, m, APIServerUnit)
	spec.ControllerManagerArgs = argsBeyond(f, m, ControllerManagerUnit)
	spec.SchedulerArgs = argsBeyond(f, m, SchedulerUnit)
	spec.ExtraSANs, err = sansBeyond(spec, f[certPath("apiserver")])
	return spec, err
}

// sansBeyond returns the names in an API server's certificate that it would
// not have without being asked for.
func sansBeyond(spec ControlPlaneSpec, certificate []byte) ([]string, error) {
	block, _ := pem.Decode(certificate)
	if block == nil {
		return nil, nil
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("certificate of the API server: %w", err)
	}
	standard, err := APIServerRequest(spec)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range cert.DNSNames {
		if !slices.Contains(standard.DNSNames, name) {
			out = append(out, name)
		}
	}
	for _, ip := range cert.IPAddresses {
		known := false
		for _, s := range standard.IPs {
			known = known || s.String() == ip.String()
		}
		if !known {
			out = append(out, ip.String())
		}
	}
	return out, nil
}

// CNIPlugin is a program of the CNI plugins' release; all of them tell it.
const CNIPlugin = cniBinDir + "/bridge"

// PathsWorkerNetworks are the files that WorkerNetworks looks at.
func PathsWorkerNetworks() []string { return []string{KubeletConfigPath, PodEgressPath} }

// egressLine finds the networks that podEgressFile lets pods reach with their
// own addresses: pods, services, then the machines'.
var egressLine = regexp.MustCompile(`ip daddr != \{ ([^{}]+) \}`)

// WorkerNetworks returns what a worker's files say of the cluster and no
// controller's do: the subnets of the machines and the address of cluster DNS;
// empty where they say nothing.
func WorkerNetworks(f Found) (nodes []string, dns string, err error) {
	var kubelet kubeletconfig.KubeletConfiguration
	if err := yaml.Unmarshal(f[KubeletConfigPath], &kubelet); err != nil {
		return nil, "", fmt.Errorf("%s: %w", KubeletConfigPath, err)
	}
	if len(kubelet.ClusterDNS) > 0 {
		dns = kubelet.ClusterDNS[0]
	}
	if m := egressLine.FindSubmatch(f[PodEgressPath]); m != nil {
		inside := strings.Split(string(m[1]), ", ")
		nodes = inside[min(2, len(inside)):]
	}
	return nodes, dns, nil
}

// PathsWorker are the files that ReadWorker looks at; the last is a pattern.
func PathsWorker() []string {
	return []string{unitPath(KubeletUnit), unitPath(KubeProxyUnit), KubeletConfigPath, KubeProxyConfigPath,
		ContainerdConfig, CNIConfigPath, ContainerdHostsDir + "/*/hosts.toml"}
}

// ReadWorker returns the settings of a worker. The spec's cluster and versions
// must be given. Labels that only an administrator may set are not on the
// machine, but on its Node object.
func ReadWorker(spec WorkerSpec, n Node, f Found) (WorkerSpec, error) {
	spec.CNI = CNIBridge
	if f[CNIConfigPath] == nil {
		spec.CNI = CNINone
	}
	var kubelet kubeletconfig.KubeletConfiguration
	if err := yaml.Unmarshal(f[KubeletConfigPath], &kubelet); err != nil {
		return spec, fmt.Errorf("%s: %w", KubeletConfigPath, err)
	}
	for _, t := range kubelet.RegisterWithTaints {
		spec.Taints = append(spec.Taints, Taint{Key: t.Key, Value: t.Value, Effect: string(t.Effect)})
	}
	spec.Labels = nil
	for pair := range strings.SplitSeq(flagsOf(f[unitPath(KubeletUnit)]).last("node-labels"), ",") {
		if k, v, ok := strings.Cut(pair, "="); ok {
			if spec.Labels == nil {
				spec.Labels = map[string]string{}
			}
			spec.Labels[k] = v
		}
	}
	var err error
	if spec.RegistryMirrors, err = mirrorsOf(f); err != nil {
		return spec, err
	}
	var containerd containerdConfig
	if err := toml.Unmarshal(f[ContainerdConfig], &containerd); err != nil {
		return spec, fmt.Errorf("%s: %w", ContainerdConfig, err)
	}
	spec.SandboxImage = containerd.Plugins.Images.PinnedImages["sandbox"]
	m, err := Worker(spec, n)
	if err != nil {
		return spec, err
	}
	if spec.KubeletConfig, err = yamlBeyond(f, m, KubeletConfigPath); err != nil {
		return spec, err
	}
	if spec.KubeProxyConfig, err = yamlBeyond(f, m, KubeProxyConfigPath); err != nil {
		return spec, err
	}
	spec.KubeletArgs = argsBeyond(f, m, KubeletUnit)
	spec.KubeProxyArgs = argsBeyond(f, m, KubeProxyUnit)
	// What containerd is told of cgroups follows from the kubelet's settings.
	if m, err = Worker(spec, n); err != nil {
		return spec, err
	}
	found, standard := map[string]any{}, map[string]any{}
	if err := toml.Unmarshal(f[ContainerdConfig], &found); err != nil {
		return spec, fmt.Errorf("%s: %w", ContainerdConfig, err)
	}
	if err := toml.Unmarshal(m.content(ContainerdConfig), &standard); err != nil {
		return spec, err
	}
	spec.ContainerdConfig = beyond(found, standard)
	return spec, nil
}

// mirrorsOf reads the registries' hosts.toml files.
func mirrorsOf(f Found) (map[string]string, error) {
	var out map[string]string
	for _, p := range slices.Sorted(maps.Keys(f)) {
		dir, file := path.Split(p)
		if file != "hosts.toml" || path.Dir(path.Clean(dir)) != ContainerdHostsDir {
			continue
		}
		var hosts registryHosts
		if err := toml.Unmarshal(f[p], &hosts); err != nil {
			return nil, fmt.Errorf("%s: %w", p, err)
		}
		registry := path.Base(dir)
		if registry == "_default" {
			registry = "*"
		}
		for url := range hosts.Host {
			if out == nil {
				out = map[string]string{}
			}
			out[registry] = url
		}
	}
	return out, nil
}

// PathsLoadBalancer are the files that ReadLoadBalancer looks at.
func PathsLoadBalancer() []string { return []string{HAProxyConfig} }

var bindLine = regexp.MustCompile(`(?m)^\s*bind \*:(\d+)$`)

// ReadLoadBalancer returns the port at which a load balancer listens, empty
// when its configuration does not say.
func ReadLoadBalancer(f Found) (port string) {
	if m := bindLine.FindSubmatch(f[HAProxyConfig]); m != nil {
		return string(m[1])
	}
	return ""
}

// content returns what the machine wants in a file.
func (m Machine) content(path string) []byte {
	for _, f := range m.State.Files {
		if f.Path == path {
			return f.Content
		}
	}
	return nil
}

// yamlBeyond returns the fields of a YAML file that differ from what is wanted in it.
func yamlBeyond(f Found, m Machine, path string) (map[string]any, error) {
	if f[path] == nil {
		return nil, nil
	}
	var found, wanted map[string]any
	if err := yaml.Unmarshal(f[path], &found); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if err := yaml.Unmarshal(m.content(path), &wanted); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return beyond(found, wanted), nil
}

// beyond returns what must be merged over standard to get found; nil when they
// are the same.
func beyond(found, standard map[string]any) map[string]any {
	var out map[string]any
	for k, v := range found {
		below, isMap := v.(map[string]any)
		if was, ok := standard[k].(map[string]any); ok && isMap {
			if b := beyond(below, was); b != nil {
				v = b
			} else {
				continue
			}
		} else if reflect.DeepEqual(v, standard[k]) {
			continue
		}
		if out == nil {
			out = map[string]any{}
		}
		out[k] = v
	}
	return out
}

// argsBeyond returns the flags of a unit on the machine that its own unit file
// would not have.
func argsBeyond(f Found, m Machine, unitName string) Args {
	wanted := flagsOf(m.content(unitPath(unitName)))
	var out Args
	for name, v := range flagsOf(f[unitPath(unitName)]) {
		if slices.Equal(v, wanted[name]) {
			continue
		}
		if out == nil {
			out = Args{}
		}
		out[name] = v
	}
	return out
}

// last returns a flag's last value, the one that counts.
func (a Args) last(name string) string {
	if v := a[name]; len(v) > 0 {
		return v[len(v)-1]
	}
	return ""
}

// flagsOf returns the flags in the ExecStart of a unit file that this package
// wrote; none for any other text.
func flagsOf(unitFile []byte) Args {
	options, err := unit.DeserializeOptions(bytes.NewReader(unitFile))
	if err != nil {
		return nil
	}
	out := Args{}
	for _, o := range options {
		if o.Section != "Service" || o.Name != "ExecStart" {
			continue
		}
		for _, word := range wordsOf(o.Value) {
			if flag, ok := strings.CutPrefix(word, "--"); ok {
				name, value, _ := strings.Cut(flag, "=")
				out[name] = append(out[name], value)
			}
		}
	}
	return out
}

// wordsOf is the opposite of commandLine and quoteWord.
func wordsOf(line string) []string {
	line = strings.ReplaceAll(line, "\\\n", " ")
	unescape := strings.NewReplacer(`%%`, `%`, `$$`, `$`)
	var out []string
	var word strings.Builder
	quoted, open := false, false
	for i := 0; i < len(line); i++ {
		c := line[i]
		switch {
		case quoted && c == '\\' && i+1 < len(line):
			i++
			word.WriteByte(line[i])
		case c == '"':
			quoted, open = !quoted, true
		case !quoted && (c == ' ' || c == '\t' || c == '\n'):
			if open {
				out = append(out, unescape.Replace(word.String()))
			}
			word.Reset()
			open = false
		default:
			word.WriteByte(c)
			open = true
		}
	}
	if open {
		out = append(out, unescape.Replace(word.String()))
	}
	return out
}
