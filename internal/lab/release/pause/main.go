// Command pause holds a pod's namespaces: it sleeps until it is told to go and reaps what the pod's
// processes leave behind. It must stay a single file of standard library code, since it is built
// from its embedded source.
package main

import (
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

var version = "unknown"

func main() {
	if len(os.Args) > 1 && (os.Args[1] == "-v" || os.Args[1] == "--version") {
		fmt.Println("pause", version)
		return
	}
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for s := range signals {
		if s != syscall.SIGCHLD {
			return
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}
