// Package lab runs the local EC2 on one Linux host. It starts, describes and stops the daemon that
// joins the AWS API (package cloud), the network, the machines, metadata and DNS, the artifact
// mirror and the image registry.
//
// All files of a lab lie in one state directory, from which it can be found again after a crash.
// This package decides nothing about EC2 or Kubernetes. Of Kubernetes it knows only the settings
// that kubelet, kube-proxy and containerd need on this host (see Vars).
package lab
