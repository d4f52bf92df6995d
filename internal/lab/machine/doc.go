// Package machine runs the instances of the local EC2: Debian machines that systemd boots inside
// systemd-nspawn. Each has its own disk (an overlay over a shared base image), control groups and
// console.
//
// The images are like those that Debian publishes for EC2, and made from the same lists of
// packages. recipe.go has the lists, and the differences with their reasons.
//
// A machine outlives the process that started it. Its directory under the lab's state directory
// records what is known of it, and a new [Manager] for the same state directory adopts the machines
// that run.
//
// Volumes are disks that outlive machines. A running machine has them as block devices, and what
// the kernel says of block devices there is made for it (volume_sight.go).
//
// The caller chooses instance ids, names and addresses. This package knows nothing of the EC2 API.
// Of networks it knows only that a machine runs in an existing network namespace with an interface
// that has carrier. Linux only; needs root.
package machine
