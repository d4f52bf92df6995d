// Package machine runs the instances of the local EC2: Debian machines booted
// by a real systemd inside systemd-nspawn, each with a disk (an overlay over one
// shared base image), control groups and a console of its own.
//
// The images are those that Debian publishes for EC2, made from the same lists of
// packages; recipe.go has the lists and the differences with their reasons.
//
// A machine outlives the process that started it. What is known about it lies in
// its directory under the lab's state directory, and a new [Manager] for the same
// directory adopts what it finds running.
//
// Instance ids, names and addresses come from the caller; this package knows
// nothing of the EC2 API, and of networks only that a machine is put into an
// existing network namespace with an interface that has carrier. Linux only; needs root.
package machine
