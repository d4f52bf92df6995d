package component_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

func Example() {
	catalog, err := artifact.NewCatalog("", nil, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	artifacts, err := catalog.EtcdSet("3.6.16")
	if err != nil && !errors.Is(err, artifact.ErrUnknownChecksum) { // an apply resolves checksums first
		fmt.Println(err)
		return
	}
	member := component.Node{Name: "controller-0", PrivateIP: netip.MustParseAddr("10.240.0.10")}
	machine, err := component.Etcd(component.EtcdSpec{
		Cluster:   component.Cluster{Name: "demo", PKI: pki.Ref{EtcdCA: "PEM of the etcd CA"}},
		Version:   "3.6.16",
		Members:   []component.Node{member},
		Artifacts: artifacts,
		Args:      component.SingleArgs(map[string]string{"snapshot-count": "5000"}),
	}, member)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, file := range machine.State.Files {
		fmt.Println(file.Path)
		if file.Path == "/etc/systemd/system/etcd.service" {
			for line := range strings.Lines(string(file.Content)) {
				if strings.Contains(line, "snapshot-count") {
					fmt.Print(line)
				}
			}
		}
	}
	for _, c := range machine.Certificates {
		fmt.Println(c.Name, "for", c.Request.CommonName, c.Request.IPs)
	}
	// Output:
	// /etc/etcd/pki/ca.crt
	// /etc/etcd/bootstrap.env
	// /etc/systemd/system/etcd.service
	//   --snapshot-count=5000 \
	// etcd server for controller-0 [10.240.0.10 127.0.0.1]
	// etcd peer for controller-0 [10.240.0.10 127.0.0.1]
}
