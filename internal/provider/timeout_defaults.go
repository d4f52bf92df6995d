package provider

import "time"

// Default time limits. Each is several times what the operation takes on real EC2, so that reaching
// one means that something is wrong and not merely slow.
const (
	// A VPC with its parts takes seconds; the rest allows for throttling.
	networkTimeout = 5 * time.Minute
	// EC2 refuses to delete a subnet until the interfaces of terminated machines are gone, which
	// can take minutes.
	networkDeleteTimeout = 15 * time.Minute
	// A volume is made and changed within seconds or a few minutes, and waits at most five minutes
	// until it is detached.
	volumeTimeout = 15 * time.Minute
	// A network load balancer forwards two or three minutes after it was made, and there may be two.
	nlbTimeout = 20 * time.Minute
	// A machine boots within a minute or two. Old instance types and the search for capacity take
	// longer.
	machineTimeout = 10 * time.Minute
	// Draining, a stop, a start, and waiting until the machine is healthy again. Waiting for its
	// turn does not count.
	machineChangeTimeout = 20 * time.Minute
	// Five private keys and as many certificates or public keys.
	pkiTimeout = 3 * time.Minute
	// Downloads over slow links dominate the first installation of a role.
	roleTimeout = 20 * time.Minute
	// A roll drains node by node; see max_unavailable and drain_timeout.
	rollTimeout = 60 * time.Minute
	// A refresh must end even if machines do not answer.
	readTimeout = 2 * time.Minute
)
