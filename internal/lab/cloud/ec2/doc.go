// Package ec2 is EC2 as the local cloud has it: one region of one account. It
// owns the state (VPCs, groups, instances, addresses, ...), refuses what EC2
// refuses with EC2's codes, and moves instances through their life cycle.
//
// Packets and processes are not its business: it hands the network a complete
// description after every change and asks a Machines to start and stop
// instances. It knows nothing of HTTP and signatures, of other services, of
// state directories, listeners, command lines or of Kubernetes, and must not
// import them.
//
// Facts are from the EC2 API Reference (version 2016-11-15), its error code
// list, and the EC2 and VPC user guides, unless a comment says otherwise.
package ec2
