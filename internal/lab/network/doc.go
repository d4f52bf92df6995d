// Package network is the local EC2's network: VPCs in which security groups, route tables, source/destination
// checks and public addresses are enforced on real packets, not just stored.
//
// A lab owns one [Slice] of the documentation address ranges, standing for "the internet". Its namespaces:
//
//	host ── kl0 ══ kl0-inet ══ kl0-vpc-… ══ kl0-eni-…
//	operator       the internet   a VPC's router   an instance's interface
//
// The host's own namespace gets one veth end and two routes, both for the slice alone: one through the veth, and an
// unreachable one beneath it that keeps packets for machines that are gone from leaving the host. The host's sysctls
// and firewall stay as they are. The internet namespace has no way out: it knows public addresses, the operator and
// servers of its own, and drops what comes from private addresses or is for nobody. Each VPC is a router namespace, so that VPCs may overlap; every packet
// between two interfaces, of the same subnet or not, crosses it.
//
// A [Config] says what there shall be, and [Manager.Apply] compares it with what the kernel has and changes the
// difference. The kernel is the only memory: namespaces are pinned under /run/netns in the way of ip-netns(8), so a
// daemon that starts again after a crash finds a working network and goes on from there.
//
// What may not enter: anything about the EC2 API, instances, or machines. This package knows interfaces, not what is
// plugged into them.
package network
