// Package network is the local EC2's network. Its VPCs enforce security groups, route tables,
// source/destination checks and public addresses on real packets.
//
// A lab owns one [Slice] of the documentation address ranges, which serve as its public addresses.
// Its namespaces:
//
//	host ── kl0 ══ kl0-inet ══ kl0-vpc-… ══ kl0-eni-…
//	operator       the internet   a VPC's router   an instance's interface
//
// The host's own namespace gets one veth end and two routes for the slice: one through the veth,
// and an unreachable route of lower priority that keeps packets for removed machines from leaving
// the host. The host's sysctls and firewall are not changed. The internet namespace is not
// connected to the real internet. It routes to public addresses, to the operator and to its own
// servers, and drops packets from private addresses and to unknown ones. Each VPC has its own
// router namespace, so that the addresses of VPCs may overlap. Every packet between two interfaces
// crosses the router, also within a subnet. The namespace of a NAT gateway's interface is a router
// of its own, which translates and sends back what it gets. The node of a load balancer is a router
// too: it replaces its own address by a target's, and the VPC's router sends it the answers because
// of a mark on the flow.
//
// A [Config] is the wanted state. [Manager.Apply] compares it with the kernel's state and changes
// the difference. All state is in the kernel: namespaces are pinned under /run/netns as by
// ip-netns(8), so a daemon that restarts after a crash finds a working network.
//
// This package must not know the EC2 API, instances, or machines. It knows interfaces, but not what
// uses them, except NAT gateways and load balancers.
package network
