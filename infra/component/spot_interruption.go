package component

import (
	_ "embed"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

//go:embed spot_interruption.py
var spotInterruptionScript []byte

// python is there wherever cloud-init runs.
const python = "/usr/bin/python3"

// spotCommand returns the command that waits for the interruption of a worker, with the metadata service at a URL.
func (w *worker) spotCommand(metadata string) []string {
	return []string{
		python, spotInterruptionPath, w.node.Name, w.spec.ControlPlaneEndpoint, NodeCAPath,
		certPath(artifact.Kubelet), keyPath(artifact.Kubelet), metadata,
	}
}

// addSpotInterruption adds the service that drains a Spot instance when EC2 gives notice. The kubelet's credentials are
// enough: a node may make its own object unschedulable, and evict and delete pods that are bound to it
// (plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go and plugin/pkg/admission/noderestriction of Kubernetes).
func (w *worker) addSpotInterruption() error {
	if !w.node.Spot {
		return nil
	}
	w.addPackages("python3")
	w.addFiles(
		desired.File{Path: spotInterruptionPath, Mode: 0o755, Content: spotInterruptionScript},
		service{
			description:   "Drains the node when EC2 interrupts this Spot instance",
			documentation: "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html",
			after:         []string{KubeletUnit}, kind: typeExec, exec: strings.Join(w.spotCommand("http://"+metadataIP), " "),
		}.file(SpotInterruptionUnit),
	)
	// The script reads the certificate anew for each request.
	w.m.State.Units = append(w.m.State.Units, running(SpotInterruptionUnit, spotInterruptionPath))
	return nil
}
