// Command mortal is the provider that dies at a chosen command: terraform-provider-k8s that kills
// itself before or after the n-th command that changes something on a machine. It counts over all
// its processes in the directory K8S_E2E_MORTAL: one line of the file "commands" is one command.
// The file "die" there says when: "12 before", "12 after"; without it nothing dies.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"github.com/go-logr/logr"
	fwprovider "github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"k8s.io/klog/v2"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
)

func main() {
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "mortal:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	klog.SetLogger(logr.Discard())
	p := provider.NewWatched("test", watcher(os.Getenv("K8S_E2E_MORTAL")))
	err := providerserver.Serve(ctx, func() fwprovider.Provider { return p },
		providerserver.ServeOpts{Address: "registry.terraform.io/k8s-from-scratch/k8s"})
	return errors.Join(err, p.Close())
}

// watcher counts commands in dir and ends the process at the one that is chosen there.
func watcher(dir string) func(machine, command string, ended bool) {
	if dir == "" {
		return nil
	}
	var (
		mu     sync.Mutex
		doomed = map[string]bool{} // the command after which the process ends
	)
	return func(machine, command string, ended bool) {
		mu.Lock()
		defer mu.Unlock()
		what := machine + " " + command
		if ended {
			if doomed[what] {
				die()
			}
			return
		}
		file := filepath.Join(dir, "commands")
		before, _ := os.ReadFile(file)
		line := fmt.Sprintf("%s\n", what)
		if err := os.WriteFile(file, append(before, line...), 0o600); err != nil {
			fmt.Fprintln(os.Stderr, "mortal:", err)
			return
		}
		var at int
		var when string
		choice, _ := os.ReadFile(filepath.Join(dir, "die"))
		_, _ = fmt.Sscanf(string(choice), "%d %s", &at, &when)
		if at != strings.Count(string(before), "\n")+1 {
			return
		}
		if when == "before" {
			die()
		}
		doomed[what] = true
	}
}

// die ends the process as kill -9 does.
func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}
