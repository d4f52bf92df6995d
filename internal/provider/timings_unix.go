//go:build unix

package provider

import (
	"runtime"
	"syscall"
	"time"
)

// usage returns the processor time of this process, and the most memory that it had at a time, in
// bytes.
func usage() (cpu time.Duration, memory int64) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, 0
	}
	memory = int64(u.Maxrss) //nolint:unconvert // it is an int32 on some systems
	if runtime.GOOS != "darwin" && runtime.GOOS != "ios" {
		memory <<= 10 // getrusage(2): KiB everywhere else
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), memory
}
