// Package nsenter runs functions in other network namespaces than the process's own.
//
// It makes no namespaces, and does not know what is in them.
package nsenter

import (
	"fmt"
	"runtime"

	"github.com/vishvananda/netns"
)

// Run runs fn on a thread in the namespace that is mounted at a path, such as /run/netns/name. Sockets that fn
// opens and processes that it starts stay there; goroutines that it starts do not.
func Run(path string, fn func() error) error {
	target, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("open network namespace %s: %w", path, err)
	}
	defer target.Close()
	return OnThread(func() error {
		if err := netns.Set(target); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", path, err)
		}
		return fn()
	})
}

// OnThread runs fn on a locked thread, and then moves the thread back to the namespace it came
// from. If that fails, the thread ends with its goroutine, so that no other goroutine runs in the
// wrong namespace.
func OnThread(fn func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		origin, err := netns.Get()
		if err != nil {
			runtime.UnlockOSThread()
			result <- fmt.Errorf("open the current network namespace: %w", err)
			return
		}
		defer origin.Close()
		err = fn()
		if netns.Set(origin) == nil {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	return <-result
}
