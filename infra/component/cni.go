package component

import (
	"cmp"
	"encoding/json"
	"fmt"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

// CNISpec holds the settings of the pod network.
type CNISpec struct {
	Network string // CNIBridge (default) or CNINone
	Version string // of the plugins, for information: the Artifacts decide what is installed
}

// Values of CNISpec.Network.
const (
	CNIBridge = "bridge"
	// CNINone installs no network configuration: a CNI add-on brings its own.
	CNINone = "none"
)

func (s CNISpec) network() string { return cmp.Or(s.Network, CNIBridge) }

// cniFiles are the files that readCNI reads. cniProgram is the plugin that is asked for the
// plugins' release.
var cniFiles, cniProgram = []string{CNIConfigPath}, cniBinDir + "/bridge"

// readCNI sets the settings found on a machine.
func (w *worker) readCNI(f Found) {
	w.spec.CNI = CNISpec{Network: CNIBridge, Version: f.Releases[cniProgram]}
	if f.Files[CNIConfigPath] == nil {
		w.spec.CNI.Network = CNINone
	}
}

const (
	cniBridge = "cni0"
	// portmapTable is the table of portmap's rules, in the families ip and ip6.
	portmapTable = "cni_hostport"
	// cniStateDir holds the addresses in use. It is in memory, because no pod keeps its address
	// over a reboot.
	cniStateDir = "/run/cni/ipam"
)

// cniPlugins are the installed reference plugins; every network needs loopback.
var cniPlugins = []string{"bridge", "host-local", "loopback", "portmap"}

// A CNI network configuration list (https://www.cni.dev/docs/spec/,
// https://www.cni.dev/plugins/current/).
type (
	cniList struct {
		CNIVersion string `json:"cniVersion"`
		Name       string `json:"name"`
		Plugins    []any  `json:"plugins"`
	}
	cniBridgePlugin struct {
		Type             string  `json:"type"`
		Bridge           string  `json:"bridge"`
		IsDefaultGateway bool    `json:"isDefaultGateway"`
		HairpinMode      bool    `json:"hairpinMode"`
		IPMasq           bool    `json:"ipMasq"`
		IPAM             cniIPAM `json:"ipam"`
	}
	cniIPAM struct {
		Type    string       `json:"type"`
		DataDir string       `json:"dataDir"`
		Ranges  [][]cniRange `json:"ranges"`
	}
	cniRange struct {
		Subnet string `json:"subnet"`
	}
	cniPortmapPlugin struct {
		Type         string          `json:"type"`
		Capabilities map[string]bool `json:"capabilities"`
		Backend      string          `json:"backend"`
		SNAT         bool            `json:"snat"`
	}
)

// bridgePackages are for nft, which portmap and the unit of pod_egress.go call.
var bridgePackages = []string{"nftables"}

// retiredBridge ends the bridge network that earlier settings have installed. The restart of containerd
// makes the change one of a drained node: pods with addresses of the bridge are not connected with those of
// another network. The bridge goes too: its route to the node's pod_cidr would hide that network's. So do the
// rules of portmap: those of pods that are not moved would still take the ports of the host.
func retiredBridge() desired.Retired {
	return desired.Retired{Unit: PodEgressUnit, Paths: []string{unitPath(PodEgressUnit), PodEgressPath, CNIConfigPath},
		Cleanup: fmt.Sprintf("for family in ip ip6; do ! nft list table $family %[2]s >/dev/null 2>&1 || nft delete table $family %[2]s || exit; done; "+
			"[ ! -e /sys/class/net/%[1]s ] || ip link delete %[1]s", cniBridge, portmapTable),
		Restarts: []string{ContainerdUnit}}
}

// addCNI adds the plugins and, for the bridge network, its configuration and the rules with which
// pods reach addresses outside the cluster.
func (w *worker) addCNI() error {
	bin, err := binary(w.spec.Artifacts, artifact.CNIPlugins)
	if err != nil {
		return err
	}
	w.m.State.Binaries = append(w.m.State.Binaries, bin)
	if w.spec.CNI.network() == CNINone {
		w.m.State.Retired = append(w.m.State.Retired, retiredBridge())
		return nil
	}
	w.addPackages(bridgePackages...)
	config, err := w.cniFile()
	if err != nil {
		return err
	}
	w.addFiles(config)
	w.addPodEgress()
	return nil
}

func (w *worker) cniFile() (desired.File, error) {
	b, err := json.MarshalIndent(cniList{
		CNIVersion: "1.0.0",
		Name:       "pods",
		Plugins: []any{
			cniBridgePlugin{
				Type: "bridge", Bridge: cniBridge, IsDefaultGateway: true,
				HairpinMode: true, // a pod may reach itself through its own service
				IPAM:        cniIPAM{Type: "host-local", DataDir: cniStateDir, Ranges: [][]cniRange{{{Subnet: w.node.PodCIDR.String()}}}},
			},
			cniPortmapPlugin{Type: "portmap", Capabilities: map[string]bool{"portMappings": true}, Backend: "nftables", SNAT: true},
		},
	}, "", "  ")
	if err != nil {
		return desired.File{}, fmt.Errorf("marshal %s: %w", CNIConfigPath, err)
	}
	return desired.File{Path: CNIConfigPath, Mode: 0o644, Content: append(b, '\n')}.Readable(), nil
}
