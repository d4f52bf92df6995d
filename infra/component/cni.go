package component

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

const (
	cniBridge = "cni0"
	// cniStateDir holds the addresses in use. It is in memory, because after a
	// reboot no pod has one.
	cniStateDir = "/run/cni/ipam"
)

// cniPlugins are the reference plugins installed; loopback is needed whatever the network.
var cniPlugins = []string{"bridge", "host-local", "loopback", "portmap"}

// A CNI network configuration list
// (https://www.cni.dev/docs/spec/, https://www.cni.dev/plugins/current/).
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

// addCNI adds the plugins and, for the bridge network, its configuration and
// the rules by which pods reach the world outside the cluster.
func (w *worker) addCNI() error {
	var installs []desired.Install
	for _, p := range cniPlugins {
		installs = append(installs, desired.Install{Member: p, Path: cniBinDir + "/" + p})
	}
	bin, err := binary(w.spec.Artifacts, artifact.CNIPlugins, installs...)
	if err != nil {
		return err
	}
	w.m.State.Binaries = append(w.m.State.Binaries, bin)
	if w.spec.CNI == CNINone {
		return nil
	}
	w.addPackages("nftables") // nft, called by portmap and the unit below
	config, err := w.cniFile()
	if err != nil {
		return err
	}
	option := unit.NewUnitOption
	w.addFiles(config, w.podEgressFile(), unitFile(PodEgressUnit, []*unit.UnitOption{
		option("Unit", "Description", "Masquerading of what pods send out of the cluster"),
		option("Unit", "Documentation", "https://wiki.nftables.org/"),
		option("Unit", "After", "nftables.service"), // whose start flushes every table
		option("Service", "Type", "oneshot"),
		option("Service", "RemainAfterExit", "yes"),
		option("Service", "ExecStart", "/usr/sbin/nft -f "+PodEgressPath),
		option("Service", "ExecReload", "/usr/sbin/nft -f "+PodEgressPath),
		option("Service", "ExecStop", "-/usr/sbin/nft delete table ip "+podEgressTable),
		option("Install", "WantedBy", "multi-user.target"),
	}))
	egress := running(PodEgressUnit)
	egress.ReloadOn = []string{PodEgressPath}
	w.m.State.Units = append(w.m.State.Units, egress)
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
	return desired.File{Path: CNIConfigPath, Mode: 0o644, Content: append(b, '\n')}, nil
}

const podEgressTable = "pod-egress"

// podEgressFile masquerades what a pod of this machine sends out of the
// cluster: the VPC routes pod addresses, the internet does not. Within the
// cluster a pod keeps its address. Loading the file replaces the table at once.
func (w *worker) podEgressFile() desired.File {
	c := w.spec.Cluster
	inside := []string{c.PodCIDR.String(), c.ServiceCIDR.String()}
	if c.NodeCIDR.IsValid() {
		inside = append(inside, c.NodeCIDR.String())
	}
	var b strings.Builder
	fmt.Fprintf(&b, "table ip %[1]s\ndelete table ip %[1]s\ntable ip %[1]s {\n", podEgressTable)
	fmt.Fprintf(&b, "\tchain postrouting {\n\t\ttype nat hook postrouting priority srcnat; policy accept;\n")
	fmt.Fprintf(&b, "\t\tip saddr %s ip daddr != { %s } oifname != %q masquerade fully-random\n\t}\n}\n",
		w.node.PodCIDR, strings.Join(inside, ", "), cniBridge)
	return desired.File{Path: PodEgressPath, Mode: 0o644, Content: []byte(b.String())}
}
