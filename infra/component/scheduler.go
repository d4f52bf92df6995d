package component

import (
	"fmt"

	componentbase "k8s.io/component-base/config/v1alpha1"
	schedulerconfig "k8s.io/kube-scheduler/config/v1"
	"k8s.io/utils/ptr"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// SchedulerSpec holds the settings of kube-scheduler.
type SchedulerSpec struct {
	Config map[string]any // merged over the typed KubeSchedulerConfiguration; unknown fields are errors
	Args   Args           // further flags
}

// schedulerFiles are the files that readScheduler reads.
var schedulerFiles = []string{unitPath(SchedulerUnit), SchedulerConfigPath}

func (c *controller) addScheduler() error {
	name := artifact.KubeScheduler
	kubeconfigFile, err := kubeconfig(SchedulerKubeconfig, c.spec.Cluster.Name, localAPIServer, CAPath, schedulerUser, certPath(name), keyPath(name))
	if err != nil {
		return err
	}
	config, err := c.spec.Scheduler.configuration()
	if err != nil {
		return err
	}
	file, err := configFile(SchedulerConfigPath, name, config, c.spec.Scheduler.Config)
	if err != nil {
		return err
	}
	c.addFiles(kubeconfigFile, file)
	c.addCertificate(name, pki.KubernetesCA, componentRequest(schedulerUser, name))
	return c.addProgram(name, "Kubernetes scheduler", typeExec, []string{APIServerUnit}, c.schedulerArgs(), c.spec.Scheduler.Args,
		SchedulerConfigPath, SchedulerKubeconfig, CAPath)
}

func (s SchedulerSpec) configuration() (map[string]any, error) {
	base := &schedulerconfig.KubeSchedulerConfiguration{
		LeaderElection:         componentbase.LeaderElectionConfiguration{LeaderElect: ptr.To(true)},
		ClientConnection:       componentbase.ClientConnectionConfiguration{Kubeconfig: SchedulerKubeconfig},
		DebuggingConfiguration: componentbase.DebuggingConfiguration{EnableProfiling: ptr.To(false)},
	}
	base.APIVersion, base.Kind = schedulerconfig.SchemeGroupVersion.String(), "KubeSchedulerConfiguration"
	config, err := Fields(base)
	if err != nil {
		return nil, err
	}
	if config, err = overlay(config, s.Config, &schedulerconfig.KubeSchedulerConfiguration{}); err != nil {
		return nil, fmt.Errorf("scheduler configuration: %w", err)
	}
	return config, nil
}

func (c *controller) schedulerArgs() Args {
	args := c.leaderArgs(artifact.KubeScheduler, SchedulerKubeconfig).and(Args{"config": values(SchedulerConfigPath)})
	delete(args, "kubeconfig") // it is in the configuration
	return args
}

func (s SchedulerSpec) check(v version.Version) (errs invalid.Fields) {
	checkConfig(&errs, "scheduler_config", artifact.KubeScheduler, v, s.Config, func() error {
		_, err := overlay(nil, s.Config, &schedulerconfig.KubeSchedulerConfiguration{})
		return err
	})
	return errs
}

// readScheduler sets the settings found on a machine.
func (c *controller) readScheduler(f Found) error {
	s := SchedulerSpec{Args: f.argsBeyond(SchedulerUnit, c.schedulerArgs())}
	standard, err := s.configuration()
	if err != nil {
		return err
	}
	s.Config, err = f.yamlBeyond(SchedulerConfigPath, standard)
	c.spec.Scheduler = s
	return err
}
