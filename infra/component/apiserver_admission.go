package component

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// admissionPlugins are the plugins that every supported kube-apiserver has (kubernetes
// pkg/kubeapiserver/options/plugins.go, AllOrderedPlugins). The program rejects others only when it
// starts, or ignores their configuration, so they are rejected here, before anything is stopped.
var admissionPlugins = []string{
	"AlwaysAdmit", "AlwaysDeny", "AlwaysPullImages", "CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction",
	"ClusterTrustBundleAttest", "DefaultIngressClass", "DefaultStorageClass", "DefaultTolerationSeconds", "DenyServiceExternalIPs",
	"EventRateLimit", "ExtendedResourceToleration", "ImagePolicyWebhook", "LimitPodHardAntiAffinityTopology", "LimitRanger",
	"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "NamespaceAutoProvision", "NamespaceExists", "NamespaceLifecycle",
	"NodeDeclaredFeatureValidator", "NodeRestriction", "OwnerReferencesPermissionEnforcement", "PersistentVolumeClaimResize",
	"PodNodeSelector", "PodSecurity", "PodTolerationRestriction", "PodTopologyLabels", "Priority", "ResourceQuota", "RuntimeClass",
	"ServiceAccount", "StorageObjectInUseProtection", "TaintNodesByCondition", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook",
}

// admissionPluginsSince are plugins by the minor of Kubernetes 1 that added them,
// admissionPluginsUntil by the minor that removed them.
var (
	admissionPluginsSince = map[int][]string{
		36: {"JobValidation", "PodGroupProtection", "PodGroupWorkloadExists", "PodResizeValidator"},
	}
	admissionPluginsUntil = map[int][]string{
		37: {"JobValidation", "PodGroupWorkloadExists"},
	}
)

// AdmissionPlugins returns the admission plugins of a kube-apiserver, sorted.
func AdmissionPlugins(v version.Version) []string {
	out := slices.Clone(admissionPlugins)
	for minor, names := range admissionPluginsSince {
		if v.Minor() >= minor {
			out = append(out, names...)
		}
	}
	for minor, names := range admissionPluginsUntil {
		if v.Minor() >= minor {
			out = slices.DeleteFunc(out, func(name string) bool { return slices.Contains(names, name) })
		}
	}
	slices.Sort(out)
	return out
}

// checkAdmissionPlugin returns an error for a plugin that the release does not have.
func checkAdmissionPlugin(v version.Version, name string) error {
	known := AdmissionPlugins(v)
	if slices.Contains(known, name) {
		return nil
	}
	for _, k := range known {
		if strings.EqualFold(k, name) {
			return fmt.Errorf("kube-apiserver %s has no admission plugin %q: did you mean %s?", v, name, k)
		}
	}
	for minor, names := range admissionPluginsUntil {
		if v.Minor() >= minor && slices.Contains(names, name) {
			return fmt.Errorf("kube-apiserver %s has no admission plugin %s, which was removed in 1.%d: remove it", v, name, minor)
		}
	}
	return fmt.Errorf("kube-apiserver %s has no admission plugin %q; it has %s", v, name, strings.Join(known, ", "))
}

// admissionFlags are the flags whose values are names of plugins.
var admissionFlags = []string{"disable-admission-plugins", "enable-admission-plugins"}

// checkAdmissionFlag returns an error for plugins in a flag of kube-apiserver that the release does
// not have.
func checkAdmissionFlag(v version.Version, flag string, lists []string) error {
	var errs []error
	for _, list := range lists {
		for name := range strings.SplitSeq(list, ",") {
			if list == "" {
				continue // no plugin
			}
			if err := checkAdmissionPlugin(v, name); err != nil {
				errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
			}
		}
	}
	return errors.Join(errs...)
}

// checkAdmission reports every plugin of the specification that the release does not have.
func (s APIServerSpec) checkAdmission(v version.Version) (errs invalid.Fields) {
	if v.IsZero() {
		return nil
	}
	const problem = "Unknown admission plugin"
	for _, name := range slices.Sorted(maps.Keys(s.AdmissionPlugins)) {
		errs.Add(fmt.Sprintf("admission_plugins[%q]", name), problem, checkAdmissionPlugin(v, name))
	}
	for _, flag := range admissionFlags {
		errs.Add(ArgField(artifact.KubeAPIServer, flag), problem, checkAdmissionFlag(v, flag, s.Args[flag]))
	}
	return errs
}
