// Package ec2 is the local cloud's EC2: one region of one account. It owns the state (VPCs, groups,
// instances, addresses, ...), refuses what EC2 refuses, with EC2's codes, and moves instances
// through their life cycle.
//
// A Network moves the packets: it gets a complete configuration after every change. A Machines
// starts and stops the machines. This package must not know HTTP, signatures, other services, state
// directories, listeners, command lines or Kubernetes.
//
// Facts are from the EC2 API Reference (version 2016-11-15), its error code list, and the EC2 and
// VPC user guides, unless a comment says otherwise.
package ec2
