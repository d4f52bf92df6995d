// Package lab is the local EC2 as one thing on one Linux host: it brings up,
// runs, describes and takes down the daemon that ties the AWS API (package
// cloud), the network, the machines, metadata and DNS, the artifact mirror and
// the image registry together.
//
// Everything of a lab lies under one state directory and can be found again
// from there after a crash. This package decides nothing about EC2 or about
// Kubernetes; it knows of the latter only what a kubelet and a containerd need
// to be told on a host such as this (see Vars).
package lab
