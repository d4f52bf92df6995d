package rollout

import (
	"time"
)

// How long to wait for what. Every wait ends earlier when its condition holds,
// when it can no longer come to hold, or when the caller's context ends.
const (
	// etcdAnswerBudget is how long a cluster whose units run may go without
	// answering (an election, a start) before it counts as one without quorum.
	etcdAnswerBudget = 10 * time.Second
	// trustBudget is how long the controller managers may take to elect a
	// leader (15 s when the last one vanished) and to write a changed CA into
	// every namespace, and the API servers to publish theirs, for which they
	// look once a minute.
	trustBudget = 2 * time.Minute
	// reloadBudget is how long an API server may take to load a changed
	// EncryptionConfiguration, for which it looks once a minute.
	reloadBudget = 150 * time.Second
	// reachBudget is how long an address may take to answer a machine, if only
	// with a refusal: TCP asks again after one and three seconds.
	reachBudget = 5 * time.Second
	// portBudget is how long HAProxy may take to listen after its start.
	portBudget = 30 * time.Second
)

const (
	// recallFor is how long looking at a cluster remembers that a machine could
	// not be reached: longer than one refresh asks about the same machine.
	recallFor = time.Minute
	// parallelRewrites is how many objects are rewritten at a time: enough to
	// keep one API server busy, few enough to leave it to others too.
	parallelRewrites = 8
	// resealRounds is how often rewriting is tried until all is sealed with
	// the new key. One is enough once every API server has it.
	resealRounds = 3
)
