package component

import (
	_ "embed"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

//go:embed ec2_events.py
var ec2EventsScript []byte

// python is there wherever cloud-init runs.
const python = "/usr/bin/python3"

// ec2EventsCommand returns the command that waits for what EC2 announces about a node, with the metadata service at a URL.
func (w *worker) ec2EventsCommand(metadata string) []string {
	command := []string{
		python, ec2EventsPath, w.node.Name, w.spec.ControlPlaneEndpoint, NodeCAPath,
		certPath(artifact.Kubelet), keyPath(artifact.Kubelet), metadata,
	}
	if w.node.DrainOnRebalance {
		command = append(command, "rebalance")
	}
	return command
}

// addEC2Events adds the service that drains an EC2 instance before EC2 interrupts, reboots or stops it. The kubelet's
// credentials are enough: a node may make its own object unschedulable, and evict and delete pods that are bound to it
// (plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go and plugin/pkg/admission/noderestriction of Kubernetes).
func (w *worker) addEC2Events() error {
	if w.node.InstanceID == "" {
		return nil
	}
	w.addPackages("python3")
	w.addFiles(
		desired.File{Path: ec2EventsPath, Mode: 0o755, Content: ec2EventsScript},
		service{
			description:   "Drains the node when EC2 announces that the instance ends or restarts",
			documentation: "https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-categories.html",
			after:         []string{KubeletUnit}, kind: typeExec, exec: strings.Join(w.ec2EventsCommand("http://"+metadataIP), " "),
		}.file(EC2EventsUnit),
	)
	// The script reads the certificate anew for each request.
	w.m.State.Units = append(w.m.State.Units, running(EC2EventsUnit, ec2EventsPath))
	return nil
}
