package provider

import "time"

// Default deadlines. Each is several times what the operation takes on real
// EC2, so that reaching it means that something is wrong rather than slow.
const (
	// A VPC with its parts takes seconds; the rest is room for throttling.
	networkTimeout = 5 * time.Minute
	// EC2 refuses to delete a subnet while interfaces of terminated machines
	// vanish, which can take minutes.
	networkDeleteTimeout = 15 * time.Minute
	// A machine boots within a minute or two; old instance types and
	// capacity searches take longer.
	machineTimeout = 10 * time.Minute
	// Draining, a stop, a start, and waiting until the machine does again what
	// it did; waiting for its turn does not count.
	machineChangeTimeout = 20 * time.Minute
	// Five parameters and as many certificates.
	pkiTimeout = 3 * time.Minute
	// Downloads on slow links dominate the first installation of a role.
	roleTimeout = 20 * time.Minute
	// A roll drains node by node; see max_unavailable and drain_timeout.
	rollTimeout = 60 * time.Minute
	// A refresh must stay bounded although machines do not answer.
	readTimeout = 2 * time.Minute
)
