package component

import (
	"fmt"

	componentbase "k8s.io/component-base/config/v1alpha1"
	schedulerconfig "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

func (c *controller) addControllerManager() error {
	name := artifact.KubeControllerManager
	config, err := kubeconfig(ManagerKubeconfig, c.spec.Cluster.Name, localAPIServer, CAPath, managerUser, certPath(name), keyPath(name))
	if err != nil {
		return err
	}
	c.addFiles(config)
	c.addCertificate(name, pki.KubernetesCA, componentRequest(managerUser, name))
	// The certificate that signs is a file of its own: a bundle is refused there.
	c.addFiles(caFile(CASigningPath, c.spec.Cluster.PKI.IssuingCertificate(pki.KubernetesCA)))
	c.m.Secrets = append(c.m.Secrets, Secret{Path: CAKeyPath, Mode: 0o600, Sources: []string{c.spec.Cluster.PKI.IssuingKey(pki.KubernetesCA)}})

	args := c.leaderArgs(name, ManagerKubeconfig).and(Args{
		"cluster-name":             values(c.spec.Cluster.Name),
		"cluster-cidr":             values(c.spec.Cluster.PodCIDR.String()),
		"service-cluster-ip-range": values(c.spec.Cluster.ServiceCIDR.String()),
		// A worker's pod range is the one its machine's route leads to; were it
		// handed out here as well, the two could differ.
		"allocate-node-cidrs": values("false"),

		"cluster-signing-cert-file":        values(CASigningPath),
		"cluster-signing-key-file":         values(CAKeyPath),
		"root-ca-file":                     values(CAPath),
		"service-account-private-key-file": values(ServiceAccountKeyPath),
		"use-service-account-credentials":  values("true"),
		"leader-elect":                     values("true"),
		"profiling":                        values("false"),
	})
	// The root CA and the service-account key are read once; the signing pair and its own certificates are reloaded.
	return c.addProgram(name, "Kubernetes controller manager", typeExec, []string{APIServerUnit},
		args, c.spec.ControllerManagerArgs, ManagerKubeconfig, CAPath, ServiceAccountKeyPath)
}

func (c *controller) addScheduler() error {
	name := artifact.KubeScheduler
	kubeconfigFile, err := kubeconfig(SchedulerKubeconfig, c.spec.Cluster.Name, localAPIServer, CAPath, schedulerUser, certPath(name), keyPath(name))
	if err != nil {
		return err
	}
	base := &schedulerconfig.KubeSchedulerConfiguration{
		LeaderElection:         componentbase.LeaderElectionConfiguration{LeaderElect: ptr.To(true)},
		ClientConnection:       componentbase.ClientConnectionConfiguration{Kubeconfig: SchedulerKubeconfig},
		DebuggingConfiguration: componentbase.DebuggingConfiguration{EnableProfiling: ptr.To(false)},
	}
	base.APIVersion, base.Kind = schedulerconfig.SchemeGroupVersion.String(), "KubeSchedulerConfiguration"
	config, err := toMap(base)
	if err != nil {
		return err
	}
	if err := CheckFields(name, c.version, c.spec.SchedulerConfig); err != nil {
		return err
	}
	if config, err = overlay(config, c.spec.SchedulerConfig, &schedulerconfig.KubeSchedulerConfiguration{}); err != nil {
		return fmt.Errorf("scheduler configuration: %w", err)
	}
	configFile, err := yamlFile(SchedulerConfigPath, config)
	if err != nil {
		return err
	}
	c.addFiles(kubeconfigFile, configFile)
	c.addCertificate(name, pki.KubernetesCA, componentRequest(schedulerUser, name))

	args := c.leaderArgs(name, SchedulerKubeconfig).and(Args{"config": values(SchedulerConfigPath)})
	delete(args, "kubeconfig") // it stands in the configuration
	return c.addProgram(name, "Kubernetes scheduler", typeExec, []string{APIServerUnit}, args, c.spec.SchedulerArgs,
		SchedulerConfigPath, SchedulerKubeconfig, CAPath)
}

// CheckSchedulerConfig is [CheckKubeletConfig] for KubeSchedulerConfiguration.
func CheckSchedulerConfig(user map[string]any) error {
	_, err := overlay(nil, user, &schedulerconfig.KubeSchedulerConfiguration{})
	return err
}

// leaderArgs is what manager and scheduler have in common: their kubeconfig and their secure port.
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
