package builtin

import (
	"encoding/json"
	"fmt"
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
)

// LocalPath is the name of the addon that makes volumes in a directory of each node.
const LocalPath = "local-path-provisioner"

const (
	localPathClass       = "local-path" // its StorageClass
	localPathDir         = "/opt/local-path-provisioner"
	localPathProvisioner = "rancher.io/local-path"
)

var localPathLabels = map[string]string{"k8s-app": LocalPath}

// localPath returns the objects of github.com/rancher/local-path-provisioner, and the default StorageClass. For each
// PersistentVolumeClaim it starts a pod on the node, which makes a directory there. The volumes are of the kind "local": if
// the directory is gone, because the machine was replaced, the pod waits. With the kind hostPath it would start with an empty one.
func localPath(_ component.Cluster, image string) ([]runtime.Object, error) {
	config, err := localPathConfig(image)
	if err != nil {
		return nil, err
	}
	account := serviceAccount(LocalPath, "system:"+LocalPath, []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"get", "list", "watch", "update"}}, // so that another node is chosen
		{APIGroups: []string{""}, Resources: []string{"persistentvolumes"}, Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete"}},
		{APIGroups: []string{storagev1.GroupName}, Resources: []string{"storageclasses"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	})
	pods := ownRole(LocalPath, localPathLabels, []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "create", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}},
	})
	class := typed(storagev1.SchemeGroupVersion.WithKind("StorageClass"), &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: localPathClass, Labels: localPathLabels, Annotations: map[string]string{
			"storageclass.kubernetes.io/is-default-class": "true",
			"defaultVolumeType":                           "local",
		}},
		Provisioner:       localPathProvisioner,
		VolumeBindingMode: ptr.To(storagev1.VolumeBindingWaitForFirstConsumer),
		ReclaimPolicy:     ptr.To(corev1.PersistentVolumeReclaimDelete),
	})
	deployment := typed(appsv1.SchemeGroupVersion.WithKind("Deployment"), localPathDeployment(image))
	return slices.Concat(account, pods, localPathClasses(), []runtime.Object{config, class, deployment}), nil
}

// localPathClasses refuses StorageClasses with a pattern of paths. With it a claim could get any directory of its node
// (CVE-2025-62878, local-path-provisioner before 0.0.34).
func localPathClasses() []runtime.Object {
	return admission(LocalPath, localPathLabels, admissionv1.Rule{APIGroups: []string{storagev1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"storageclasses"}},
		[]admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
		fmt.Sprintf("object.provisioner == %q", localPathProvisioner),
		`!has(object.parameters) || !("pathPattern" in object.parameters)`,
		"With pathPattern a claim could get any directory of its node. Leave it out.")
}

// localPathConfig returns the configuration: where volumes are, and the pod that makes and deletes them. That pod is root
// on its node's directory and nothing else.
func localPathConfig(image string) (runtime.Object, error) {
	paths, err := json.Marshal(map[string]any{"nodePathMap": []any{map[string]any{"node": "DEFAULT_PATH_FOR_NON_LISTED_NODES", "paths": []string{localPathDir}}}})
	if err != nil {
		return nil, err
	}
	helper, err := component.Fields(typed(corev1.SchemeGroupVersion.WithKind("Pod"), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "local-path", Labels: map[string]string{"k8s-app": LocalPath + "-helper"}},
		Spec: corev1.PodSpec{
			PriorityClassName:            "system-node-critical",
			AutomountServiceAccountToken: ptr.To(false),
			Tolerations:                  []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, // releases since 0.0.31 add fewer
			Containers: []corev1.Container{{Name: "helper-pod", Image: image, ImagePullPolicy: corev1.PullIfNotPresent, SecurityContext: &corev1.SecurityContext{
				AllowPrivilegeEscalation: ptr.To(false),
				ReadOnlyRootFilesystem:   ptr.To(true),
				SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			}}},
		},
	}))
	if err != nil {
		return nil, err
	}
	pod, err := yaml.Marshal(helper)
	if err != nil {
		return nil, err
	}
	return typed(corev1.SchemeGroupVersion.WithKind("ConfigMap"), &corev1.ConfigMap{
		ObjectMeta: systemMeta("local-path-config", localPathLabels),
		Data: map[string]string{
			"config.json":    string(paths),
			"helperPod.yaml": string(pod),
			"setup":          "set -eu\nmkdir -m 0777 -p \"$VOL_DIR\"\n",
			"teardown":       "set -eu\nrm -rf \"$VOL_DIR\"\n",
		},
	}), nil
}

func localPathDeployment(image string) *appsv1.Deployment {
	const configDir = "/etc/config"
	d := systemDeployment(LocalPath, 1, 1, localPathLabels, corev1.PodSpec{
		ServiceAccountName: LocalPath,
		PriorityClassName:  "system-cluster-critical",
		NodeSelector:       map[string]string{corev1.LabelOSStable: "linux"},
		Tolerations: []corev1.Toleration{
			{Key: "CriticalAddonsOnly", Operator: corev1.TolerationOpExists},
			{Key: "node-role.kubernetes.io/control-plane", Effect: corev1.TaintEffectNoSchedule},
		},
		Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "local-path-config"}}}}},
		Containers: []corev1.Container{{
			Name: LocalPath, Image: image, ImagePullPolicy: corev1.PullIfNotPresent,
			Command: []string{
				"local-path-provisioner", "start",
				"--namespace=" + metav1.NamespaceSystem,
				"--service-account-name=" + LocalPath,
				"--config=" + configDir + "/config.json",
				"--helper-pod-file=" + configDir + "/helperPod.yaml",
			},
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("30Mi")}},
			SecurityContext: restricted(65534),
			Env:             []corev1.EnvVar{{Name: "CONFIG_MOUNT_PATH", Value: configDir}}, // read again when it changes
			VolumeMounts:    []corev1.VolumeMount{{Name: "config", MountPath: configDir, ReadOnly: true}},
		}},
	})
	d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType} // it elects no leader
	return d
}
