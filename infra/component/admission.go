package component

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/version"
)

// admissionPlugins are the plugins every supported kube-apiserver is built
// with (kubernetes pkg/kubeapiserver/options/plugins.go, AllOrderedPlugins).
// The program refuses others only once it starts, or ignores their
// configuration; here they are refused before anything is stopped for them.
var admissionPlugins = []string{
	"AlwaysAdmit", "AlwaysDeny", "AlwaysPullImages", "CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction",
	"ClusterTrustBundleAttest", "DefaultIngressClass", "DefaultStorageClass", "DefaultTolerationSeconds", "DenyServiceExternalIPs",
	"EventRateLimit", "ExtendedResourceToleration", "ImagePolicyWebhook", "LimitPodHardAntiAffinityTopology", "LimitRanger",
	"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "NamespaceAutoProvision", "NamespaceExists", "NamespaceLifecycle",
	"NodeDeclaredFeatureValidator", "NodeRestriction", "OwnerReferencesPermissionEnforcement", "PersistentVolumeClaimResize",
	"PodNodeSelector", "PodSecurity", "PodTolerationRestriction", "PodTopologyLabels", "Priority", "ResourceQuota", "RuntimeClass",
	"ServiceAccount", "StorageObjectInUseProtection", "TaintNodesByCondition", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook",
}

// admissionPluginsSince are those that a minor of Kubernetes 1 brought, and
// admissionPluginsUntil those that it does not have any more.
var (
	admissionPluginsSince = map[int][]string{
		36: {"JobValidation", "PodGroupProtection", "PodGroupWorkloadExists", "PodResizeValidator"},
	}
	admissionPluginsUntil = map[int][]string{
		37: {"JobValidation", "PodGroupWorkloadExists"},
	}
)

// AdmissionPlugins lists the admission plugins of a kube-apiserver, sorted.
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

// checkAdmissionPlugin reports a plugin that the release does not have.
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
			return fmt.Errorf("kube-apiserver %s has no admission plugin %s, which is gone since 1.%d: take it out", v, name, minor)
		}
	}
	return fmt.Errorf("kube-apiserver %s has no admission plugin %q; it has %s", v, name, strings.Join(known, ", "))
}

// admissionFlags name plugins.
var admissionFlags = []string{"disable-admission-plugins", "enable-admission-plugins"}

// checkAdmissionFlag reports plugins that a flag of kube-apiserver names and the
// release does not have.
func checkAdmissionFlag(v version.Version, flag string, lists []string) error {
	var errs []error
	for _, list := range lists {
		for name := range strings.SplitSeq(list, ",") {
			if list == "" {
				continue // none
			}
			if err := checkAdmissionPlugin(v, name); err != nil {
				errs = append(errs, fmt.Errorf("--%s: %w", flag, err))
			}
		}
	}
	return errors.Join(errs...)
}

// checkAdmission reports every plugin that the specification names in vain.
func (s APIServerSpec) checkAdmission(v version.Version) (errs FieldErrors) {
	if v.IsZero() {
		return nil
	}
	const problem = "Unknown admission plugin"
	for _, name := range slices.Sorted(maps.Keys(s.AdmissionPlugins)) {
		errs.add(fmt.Sprintf("admission_plugins[%q]", name), problem, checkAdmissionPlugin(v, name))
	}
	for _, flag := range admissionFlags {
		errs.add(ArgField(artifact.KubeAPIServer, flag), problem, checkAdmissionFlag(v, flag, s.Args[flag]))
	}
	return errs
}
