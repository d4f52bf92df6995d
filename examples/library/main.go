// Command library installs etcd and a control plane on one machine, with the library alone. It writes a kubeconfig, and
// prints what differs from what is wanted afterwards.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/kubeconfig"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/controlplane"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/etcdcluster"
)

func main() {
	ctx, address, private := context.Background(), os.Getenv("ADDRESS"), netip.MustParseAddr(os.Getenv("PRIVATE_IP"))
	signer := must(ssh.ParsePrivateKey(must(os.ReadFile(os.Getenv("SSH_KEY_FILE")))))
	checksums := strings.NewReader(os.Getenv("CHECKSUMS")) // beside the pinned ones, in the format of sha256sum
	catalog := must(artifact.NewCatalog(os.Getenv("MIRROR"), checksums, http.DefaultClient))
	downloads := func(list []artifact.Artifact, err error) []artifact.Artifact {
		if err == nil || errors.Is(err, artifact.ErrUnknownChecksum) {
			err = catalog.Resolve(ctx, list) // from the checksums that upstream publishes
		}
		return must(list, err)
	}

	// Keys are kept in memory here, and end with the program. A store of your own implements pki.Store.
	keys := pki.NewMemoryStore(nil)
	cluster := component.Cluster{Name: "library", Domain: "cluster.local", DNSIP: netip.MustParseAddr("10.32.0.10"),
		PodCIDR: component.DefaultPodCIDR, ServiceCIDR: component.DefaultServiceCIDR,
		PKI: must(pki.Bootstrap(ctx, keys, "library", time.Now(), rand.Reader, pki.Options{Store: pki.StoreState}))}
	node := component.Node{Name: "controller-0", PrivateIP: private}
	targets := []fleet.Target{{Node: node, Host: remote.Host{Name: node.Name, Address: address, User: "admin", HostKeys: []string{os.Getenv("HOST_KEY")}}}}

	engine := &rollout.Engine{Fleet: &fleet.Fleet{
		Pool:     remote.NewPool(remote.Config{Signers: []ssh.Signer{signer}}),
		Store:    func(pki.Ref) (pki.Store, error) { return keys, nil },
		Progress: func(machine, message string) { fmt.Println(machine+":", message) },
	}}
	for _, role := range []rollout.Role{
		etcdcluster.Cluster{Targets: targets, Spec: component.EtcdSpec{Cluster: cluster, Version: "3.6.16", Artifacts: downloads(catalog.EtcdSet("3.6.16"))}},
		controlplane.ControlPlane{Targets: targets, Spec: component.ControlPlaneSpec{Cluster: cluster, Version: "1.36.4", EndpointNames: []string{address},
			EtcdEndpoints: component.EtcdEndpoints([]component.Node{node}), Artifacts: downloads(catalog.ControlPlaneSet("1.36.4"))}},
	} {
		record := must(engine.Apply(ctx, role, nil, rollout.Record{})) // a program that runs again keeps the record
		report := must(engine.Observe(ctx, role, record))
		fmt.Printf("%T differs in %d ways\n", role, len(report.Findings))
	}

	admin := must(kubeconfig.Issue(ctx, keys, cluster.PKI, kubeconfig.Request{Endpoint: "https://" + address + ":6443"}, time.Now(), rand.Reader))
	must(0, os.WriteFile("kubeconfig", must(admin.YAML()), 0o600))
}

// must returns a value, or ends the program with the error.
func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}
