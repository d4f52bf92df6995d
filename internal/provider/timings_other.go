//go:build !unix

package provider

import "time"

// usage is not known on this system.
func usage() (cpu time.Duration, memory int64) { return 0, 0 }
