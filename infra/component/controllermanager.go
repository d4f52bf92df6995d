package component

import (
	"net/netip"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

// ControllerManagerSpec holds the settings of kube-controller-manager.
type ControllerManagerSpec struct {
	Args Args // further flags
}

// controllerManagerFiles are the files that readControllerManager reads.
var controllerManagerFiles = []string{unitPath(ControllerManagerUnit)}

func (c *controller) addControllerManager() error {
	name := artifact.KubeControllerManager
	config, err := kubeconfig(ManagerKubeconfig, c.spec.Cluster.Name, localAPIServer, CAPath, managerUser, certPath(name), keyPath(name))
	if err != nil {
		return err
	}
	c.addFiles(config)
	c.addCertificate(name, pki.KubernetesCA, componentRequest(managerUser, name))
	// Programs in pods may accept a server's certificate only up to a root, so the chain of a given
	// authority is in this file as well.
	c.addFiles(caFile(RootCAPath, c.spec.Cluster.PKI.ServerBundle(pki.KubernetesCA)))
	// The signing certificate needs a file of its own: a bundle is rejected there.
	c.addFiles(caFile(CASigningPath, c.spec.Cluster.PKI.IssuingCertificate(pki.KubernetesCA)))
	c.m.Secrets = append(c.m.Secrets, Secret{Path: CAKeyPath, Mode: 0o600, Sources: []string{c.spec.Cluster.PKI.IssuingKey(pki.KubernetesCA)}})

	// The root CA and the service-account key are read once; the signing pair and its own
	// certificates are reloaded.
	return c.addProgram(name, "Kubernetes controller manager", typeExec, []string{APIServerUnit},
		c.controllerManagerArgs(), c.spec.ControllerManager.Args, ManagerKubeconfig, CAPath, RootCAPath, ServiceAccountKeyPath)
}

func (c *controller) controllerManagerArgs() Args {
	return c.leaderArgs(artifact.KubeControllerManager, ManagerKubeconfig).and(Args{
		"cluster-name":             values(c.spec.Cluster.Name),
		"cluster-cidr":             values(c.spec.Cluster.PodCIDR.String()),
		"service-cluster-ip-range": values(c.spec.Cluster.ServiceCIDR.String()),
		// A worker's pod network must be the destination of the route to its machine. A network
		// that the controller manager assigns could be another one.
		"allocate-node-cidrs": values("false"),

		"cluster-signing-cert-file":        values(CASigningPath),
		"cluster-signing-key-file":         values(CAKeyPath),
		"root-ca-file":                     values(RootCAPath),
		"service-account-private-key-file": values(ServiceAccountKeyPath),
		"use-service-account-credentials":  values("true"),
		"leader-elect":                     values("true"),
		"profiling":                        values("false"),
	})
}

// readControllerManager sets the settings found on a machine.
func (c *controller) readControllerManager(f Found) error {
	c.spec.ControllerManager = ControllerManagerSpec{Args: f.argsBeyond(ControllerManagerUnit, c.controllerManagerArgs())}
	return nil
}

// readManagerNetworks sets what the controller manager's flags say of the cluster.
func (c *Cluster) readManagerNetworks(f Found) {
	if !c.PodCIDR.IsValid() {
		c.PodCIDR, _ = netip.ParsePrefix(f.args(ControllerManagerUnit).last("cluster-cidr"))
	}
}

// leaderArgs are the flags that the manager and the scheduler share: kubeconfig and secure port.
func (c *controller) leaderArgs(name, kubeconfig string) Args {
	return Args{
		"kubeconfig":                   values(kubeconfig),
		"authentication-kubeconfig":    values(kubeconfig),
		"authorization-kubeconfig":     values(kubeconfig),
		"bind-address":                 values(loopback.String()),
		"client-ca-file":               values(CAPath),
		"requestheader-client-ca-file": values(FrontProxyCAPath),
		"tls-cert-file":                values(certPath(name)),
		"tls-private-key-file":         values(keyPath(name)),
		"tls-min-version":              values("VersionTLS12"),
	}
}
