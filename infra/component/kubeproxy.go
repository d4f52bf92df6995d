package component

import (
	"fmt"
	"maps"

	componentbase "k8s.io/component-base/config/v1alpha1"
	proxyconfig "k8s.io/kube-proxy/config/v1alpha1"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// KubeProxySpec holds the settings of kube-proxy.
type KubeProxySpec struct {
	Off    bool           // no kube-proxy: the network of the pods has its own way to services
	Config map[string]any // merged over the typed KubeProxyConfiguration; unknown fields are errors
	Args   Args           // further flags
}

const (
	kubeProxyUser    = "system:kube-proxy"
	defaultProxyMode = "nftables"
)

// kubeProxyFiles are the files that readKubeProxy reads.
var kubeProxyFiles = []string{unitPath(KubeProxyUnit), KubeProxyConfigPath}

// kubeProxyArgs are the flags of kube-proxy. All other settings are in its configuration file.
var kubeProxyArgs = Args{"config": values(KubeProxyConfigPath)}

// retiredKubeProxy ends a kube-proxy that earlier settings have installed. Its rules and virtual servers
// stay in the kernel when it stops, and would still answer for services.
func retiredKubeProxy() desired.Retired {
	program := binPath(artifact.KubeProxy)
	return desired.Retired{Unit: KubeProxyUnit,
		Paths: []string{unitPath(KubeProxyUnit), KubeProxyConfigPath, KubeProxyKubeconfig,
			certPath(artifact.KubeProxy), keyPath(artifact.KubeProxy), program},
		Cleanup: fmt.Sprintf("[ ! -x %[1]s ] || %[1]s --cleanup", program)}
}

func (w *worker) addKubeProxy() error {
	if w.spec.KubeProxy.Off {
		w.m.State.Retired = append(w.m.State.Retired, retiredKubeProxy())
		return nil
	}
	config := w.kubeProxyConfigOfNode(w.configs.kubeProxy)
	w.addPackages(proxyPackages(config["mode"])...)
	file, err := configFile(KubeProxyConfigPath, artifact.KubeProxy, config, w.spec.KubeProxy.Config)
	if err != nil {
		return err
	}
	kubeconfigFile, err := w.kubeconfig(KubeProxyKubeconfig, kubeProxyUser, artifact.KubeProxy)
	if err != nil {
		return err
	}
	w.addFiles(file, kubeconfigFile)
	w.m.Certificates = append(w.m.Certificates, slot(artifact.KubeProxy, certPath(artifact.KubeProxy), keyPath(artifact.KubeProxy),
		pki.KubernetesCA, pki.Request{CommonName: kubeProxyUser, Client: true}))
	return w.addProgram(artifact.KubeProxy, "Kubernetes service proxy", typeExec, []string{ContainerdUnit}, kubeProxyArgs, w.spec.KubeProxy.Args,
		limitNoFile("1048576"), KubeProxyConfigPath, KubeProxyKubeconfig, NodeCAPath)
}

// kubeProxyConfigOfNode adds the fields of the worker's node to those of the pool, unless the user has set them.
func (w *worker) kubeProxyConfigOfNode(pool map[string]any) map[string]any {
	m := maps.Clone(pool)
	if _, set := w.spec.KubeProxy.Config["hostnameOverride"]; !set {
		m["hostnameOverride"] = w.node.Name
	}
	return m
}

// kubeProxyConfig returns the configuration of every node with the user's settings.
func (s WorkerSpec) kubeProxyConfig() (map[string]any, error) {
	base := &proxyconfig.KubeProxyConfiguration{
		ClientConnection: componentbase.ClientConnectionConfiguration{Kubeconfig: KubeProxyKubeconfig},
		Mode:             defaultProxyMode,
		ClusterCIDR:      s.Cluster.PodCIDR.String(),
	}
	base.APIVersion, base.Kind = proxyconfig.SchemeGroupVersion.String(), "KubeProxyConfiguration"
	config, err := Fields(base)
	if err != nil {
		return nil, err
	}
	if config, err = overlay(config, s.KubeProxy.Config, &proxyconfig.KubeProxyConfiguration{}); err != nil {
		return nil, fmt.Errorf("kube-proxy configuration: %w", err)
	}
	if mode, _ := config["mode"].(string); mode == "" {
		config["mode"] = "iptables" // the default; kube-proxy 1.37 warns if it is not set
	}
	return config, nil
}

func (s KubeProxySpec) check(v version.Version) (errs invalid.Fields) {
	if s.Off {
		const problem, words = "No kube-proxy", "With kube_proxy = false there is no kube-proxy that could use it. Remove it."
		if len(s.Config) > 0 {
			errs.Say("kube_proxy_config", problem, words)
		}
		if len(s.Args) > 0 {
			errs.Say("extra_args.kube_proxy", problem, words)
		}
		return errs
	}
	checkConfig(&errs, "kube_proxy_config", artifact.KubeProxy, v, s.Config, func() error {
		_, err := overlay(nil, s.Config, &proxyconfig.KubeProxyConfiguration{})
		return err
	})
	return errs
}

// readKubeProxy sets the settings found on a machine.
func (w *worker) readKubeProxy(f Found) error {
	if f.Files[unitPath(KubeProxyUnit)] == nil && f.Files[KubeProxyConfigPath] == nil {
		w.spec.KubeProxy = KubeProxySpec{Off: true}
		return nil
	}
	w.spec.KubeProxy = KubeProxySpec{Args: f.argsBeyond(KubeProxyUnit, kubeProxyArgs)}
	standard, err := w.spec.kubeProxyConfig()
	if err != nil {
		return err
	}
	w.spec.KubeProxy.Config, err = f.yamlBeyond(KubeProxyConfigPath, w.kubeProxyConfigOfNode(standard))
	return err
}

// proxyPackages are the packages of the programs that kube-proxy calls in a mode
// (https://kubernetes.io/docs/reference/networking/virtual-ips/#proxy-modes).
func proxyPackages(mode any) []string {
	switch mode {
	case "nftables":
		return []string{"nftables"}
	case "ipvs":
		return []string{"ipset", "iptables"}
	default:
		return []string{"iptables"}
	}
}
