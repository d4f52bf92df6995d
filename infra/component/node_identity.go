package component

import (
	"maps"
	"regexp"

	corev1 "k8s.io/api/core/v1"
)

// region begins the name of every availability zone, Local Zone and Wavelength Zone: us-gov-west-1a, us-west-2-lax-1a.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/using-regions-availability-zones.html
var region = regexp.MustCompile(`^[a-z]+(-[a-z]+)+-[0-9]+`)

// placement is what EC2 says about the node, as the labels that a cloud controller manager would set. The scheduler
// spreads pods over zones by the label of the zone, and volumes are bound by it.
// https://kubernetes.io/docs/reference/labels-annotations-taints/#topologykubernetesiozone
func (n Node) placement() map[string]string {
	labels := map[string]string{corev1.LabelTopologyZone: n.Zone}
	if n.InstanceID != "" {
		labels[corev1.LabelTopologyRegion] = region.FindString(n.Zone)
		labels[corev1.LabelInstanceTypeStable] = n.InstanceType
	}
	maps.DeleteFunc(labels, func(_, v string) bool { return v == "" })
	return labels
}

// ProviderID returns the identity of the node's EC2 instance, as a cloud controller manager, the autoscalers and the
// drivers of EBS look for it: "aws:///ZONE/ID". It is empty for other machines. A providerID in kubelet_config takes
// precedence.
func (s KubeletSpec) ProviderID(n Node) string {
	if own, set := s.Config["providerID"]; set {
		id, _ := own.(string)
		return id
	}
	if n.InstanceID == "" || !region.MatchString(n.Zone) {
		return ""
	}
	return "aws:///" + n.Zone + "/" + n.InstanceID
}

// NodeLabels returns the labels of a node: its region, zone and instance type as far as they are known, and the
// labels of the specification, which override these.
func (s KubeletSpec) NodeLabels(n Node) map[string]string {
	labels := n.placement()
	maps.Copy(labels, s.Labels)
	return labels
}

// OwnLabels is the inverse of [KubeletSpec.NodeLabels]. It returns nil for no labels.
func OwnLabels(n Node, labels map[string]string) map[string]string {
	own, placed := maps.Clone(labels), n.placement()
	maps.DeleteFunc(own, func(k, v string) bool { is, ok := placed[k]; return ok && is == v })
	if len(own) == 0 {
		return nil
	}
	return own
}
