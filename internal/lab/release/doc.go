// Package release fills the cache with what machines of the local EC2 download: releases of
// Kubernetes, etcd, containerd, runc and the CNI plugins in upstream's layout, and the container
// images that a bare cluster needs.
//
// Releases are fetched and checked against upstream's checksums if upstream's hosts answer.
// Otherwise they are built from Go modules and Debian packages. Either way the files have the same
// names; only their checksums differ.
//
// It knows nothing of machines, networks, the EC2 API or the provider. Packages mirror and registry
// serve the directories.
package release
