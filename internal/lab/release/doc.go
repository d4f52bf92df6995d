// Package release provides what machines of the local EC2 download: Kubernetes,
// etcd, containerd, runc and CNI plugin releases in upstream's own layout, and
// the container images a bare cluster needs. It fills directories of the cache.
//
// What upstream publishes is fetched and checked against upstream's checksums
// when its hosts answer; otherwise it is built from Go modules and Debian
// packages. Both ways end in the same files under the same names, so a client
// of the mirror cannot tell them apart except by their checksums.
//
// Nothing here knows of machines, networks, the EC2 API, the provider, or how
// the directories are served, which packages mirror and registry do.
package release
