package apply

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/release"
)

// node is a machine of kubeadm's cluster, as the Terraform output "nodes" has it.
type node struct {
	Name    string `json:"-"`
	Address string `json:"address"`
	Pods    string `json:"pods"` // CIDR of its pods
}

func (n node) controller() bool { return strings.HasPrefix(n.Name, "controller-") }

// cluster is what all nodes know.
type cluster struct {
	Endpoint       string // host:port of HAProxy
	Token          string // of bootstrap
	CertificateKey string // encrypts the keys that controllers get from the API server
	Vars           labVars
}

// The networks of examples/ha-cluster.
const (
	podNetwork     = "10.200.0.0/16"
	serviceNetwork = "10.32.0.0/24"
	dnsAddress     = "10.32.0.10" // kubeadm takes the tenth
	criSocket      = "unix:///run/containerd/containerd.sock"
)

type object = map[string]any

// initConfig is the input of kubeadm init: YAML documents, each written as JSON. Pods get no
// network from the controller manager, since each node's network is fixed, as in
// examples/ha-cluster.
func (c cluster) initConfig(n node) ([]byte, error) {
	const api = "kubeadm.k8s.io/v1beta4"
	kubelet := object{"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
	maps.Copy(kubelet, c.Vars.Kubelet)
	proxy := object{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"mode": "nftables", "clusterCIDR": podNetwork,
	}
	maps.Copy(proxy, c.Vars.KubeProxy)
	return documents(
		object{
			"apiVersion": api, "kind": "InitConfiguration",
			"bootstrapTokens":  []object{{"token": c.Token}},
			"certificateKey":   c.CertificateKey,
			"nodeRegistration": registration(n),
			"localAPIEndpoint": object{"advertiseAddress": n.Address},
		},
		object{
			"apiVersion": api, "kind": "ClusterConfiguration",
			"kubernetesVersion":    release.KubernetesVersion,
			"controlPlaneEndpoint": c.Endpoint,
			"networking":           object{"serviceSubnet": serviceNetwork},
			"etcd":                 object{"local": object{"imageTag": release.EtcdTag}},
			"dns":                  object{"imageTag": release.CoreDNSVersion},
		},
		kubelet, proxy,
	)
}

// joinConfig is the input of kubeadm join. caHash pins the cluster's authority.
func (c cluster) joinConfig(n node, caHash string) ([]byte, error) {
	join := object{
		"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "JoinConfiguration",
		"discovery": object{"bootstrapToken": object{
			"token": c.Token, "apiServerEndpoint": c.Endpoint, "caCertHashes": []string{caHash},
		}},
		"nodeRegistration": registration(n),
	}
	if n.controller() {
		join["controlPlane"] = object{
			"certificateKey": c.CertificateKey, "localAPIEndpoint": object{"advertiseAddress": n.Address},
		}
	}
	return documents(join)
}

// registration of a node. kubeadm's check of the system wants the kernel's configuration and control
// groups of version 2; the lab's machines are containers on the kernel of any computer.
func registration(n node) object {
	return object{"name": n.Name, "criSocket": criSocket, "ignorePreflightErrors": []string{"SystemVerification"}}
}

// documents joins objects to YAML documents.
func documents(objects ...object) ([]byte, error) {
	var b bytes.Buffer
	for _, o := range objects {
		text, err := json.MarshalIndent(o, "", "  ")
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "---\n%s\n", text)
	}
	return b.Bytes(), nil
}

// cniConfig is the network of a node's pods: a bridge with fixed addresses, as on the provider's
// workers.
func cniConfig(n node) ([]byte, error) {
	return json.MarshalIndent(object{
		"cniVersion": "1.0.0", "name": "pods",
		"plugins": []object{
			{
				"type": "bridge", "bridge": "cni0", "isDefaultGateway": true, "hairpinMode": true,
				"ipam": object{"type": "host-local", "dataDir": "/run/cni/ipam", "ranges": [][]object{{{"subnet": n.Pods}}}},
			},
			{"type": "portmap", "capabilities": object{"portMappings": true}, "backend": "nftables", "snat": true},
		},
	}, "", "  ")
}

// containerdConfig is containerd's config.toml, with the cgroup driver of the kubelet.
func (c cluster) containerdConfig() ([]byte, error) {
	driver, _ := c.Vars.Kubelet["cgroupDriver"].(string)
	return toml.Marshal(merge(object{
		"version": 3,
		"plugins": object{
			"io.containerd.cri.v1.images": object{
				"snapshotter":   "overlayfs",
				"pinned_images": object{"sandbox": release.PauseImage},
			},
			"io.containerd.cri.v1.runtime": object{
				"containerd": object{
					"default_runtime_name": "runc",
					"runtimes": object{"runc": object{
						"runtime_type": "io.containerd.runc.v2",
						"options":      object{"SystemdCgroup": driver != "cgroupfs"},
					}},
				},
				"cni": object{"conf_dir": "/etc/cni/net.d"},
			},
		},
	}, c.Vars.Containerd))
}

// merge returns base with the values of over, objects field by field.
func merge(base, over object) object {
	merged := maps.Clone(base)
	for key, value := range over {
		inner, isObject := value.(object)
		if below, ok := base[key].(object); ok && isObject {
			value = merge(below, inner)
		}
		merged[key] = value
	}
	return merged
}

//go:embed haproxy.cfg
var haproxyHead string

// haproxyConfig balances the API servers of all controllers, with the checks of k8s_lb except the
// pinned authority, which does not exist yet.
func haproxyConfig(nodes []node) string {
	var b strings.Builder
	b.WriteString(haproxyHead)
	for _, n := range nodes {
		if n.controller() {
			fmt.Fprintf(&b, "    server %s %s:6443\n", n.Name, n.Address)
		}
	}
	return b.String()
}

// nodesOf returns the nodes by name, so that controllers come first.
func nodesOf(output map[string]node) []node {
	var nodes []node
	for _, name := range slices.Sorted(maps.Keys(output)) {
		n := output[name]
		n.Name = name
		nodes = append(nodes, n)
	}
	return nodes
}
