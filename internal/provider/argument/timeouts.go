package argument

import "time"

// Default time limits. Each is several times what the operation takes on real EC2, so that reaching
// one means that something is wrong and not merely slow.
const (
	// Five private keys and as many certificates or public keys.
	PKITimeout = 3 * time.Minute
	// Downloads over slow links dominate the first installation of a role.
	RoleTimeout = 20 * time.Minute
	// A refresh must end even if machines do not answer.
	ReadTimeout = 2 * time.Minute
)
