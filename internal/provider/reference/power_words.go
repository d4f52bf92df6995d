package reference

// Running and Stopped are the states of an instance that are planned. Paused is the power state, in
// a host, of a machine that is stopped together with its cluster.
const (
	Running = "running"
	Stopped = "stopped"
	Paused  = "paused"
)
