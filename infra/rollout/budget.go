package rollout

import (
	"time"
)

// Time limits of waits. Every wait ends earlier when its condition holds, when the condition can no
// longer come to hold, or when the caller's context ends.
const (
	// etcdAnswerBudget is how long a cluster whose units run may give no answer (an election, a
	// start) before it counts as one without quorum.
	etcdAnswerBudget = 10 * time.Second
	// trustBudget is how long the controller managers may take to elect a leader (15 s after the
	// last one disappeared) and to write a changed CA into every namespace, and the API servers to
	// publish theirs, which they check once a minute.
	trustBudget = 2 * time.Minute
	// reloadBudget is how long an API server may take to load a changed EncryptionConfiguration,
	// which it checks once a minute.
	reloadBudget = 150 * time.Second
	// reachBudget is how long an address may take to answer a machine, if only with a refusal: TCP
	// sends again after one and after three seconds.
	reachBudget = 5 * time.Second
	// portBudget is how long HAProxy may take to listen after its start.
	portBudget = 30 * time.Second
	// addressBudget is how long the virtual address may take to be on one machine and answer.
	addressBudget = 45 * time.Second
	// addressSteady is how long it must be so to count: a machine that hears no other takes the address after
	// four seconds, and its HAProxy must have answered twice.
	addressSteady = 7 * time.Second
)

const (
	// parallelRewrites is how many objects are rewritten at the same time: enough to keep one API
	// server busy, few enough not to block other clients.
	parallelRewrites = 8
	// resealRounds is how often rewriting is tried until every value is encrypted with the new key.
	// One round is enough once every API server uses the key.
	resealRounds = 3
)
