package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/host"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/network"
)

// stopTimeout bounds the wait for the daemon to end. The daemon does not wait for machines.
const stopTimeout = 20 * time.Second

// Down stops the daemon and removes the machines, the network and the state, also what a crashed
// lab left. The error lists what could not be removed.
func (l *Lab) Down(ctx context.Context) error {
	if l.gone() {
		return nil
	}
	if os.Geteuid() != 0 {
		return errors.New("a lab's machines and network belong to root: run this as root, or with sudo")
	}
	turn, err := l.turn(ctx)
	if err != nil {
		return err
	}
	defer turn()
	if l.gone() { // another down was faster
		return nil
	}
	if err := l.stopDaemon(ctx); err != nil {
		return err
	}
	s, err := l.readSettings()
	if other := new(FormatError); err != nil && !errors.As(err, &other) {
		return err
	}
	l.progress.Line("ending machines")
	//nolint:contextcheck // it watches machines until it is closed
	machines, err := machine.NewManager(l.dir, s.Machines, s.MachineImages)
	if err != nil {
		return err
	}
	if err := machines.Down(ctx); err != nil {
		return err
	}
	l.progress.Line("removing the network")
	slice, err := network.Claim(l.dir)
	if err != nil {
		return err
	}
	if err := network.Down(ctx, slice); err != nil {
		return err
	}
	left, err := l.leftovers(slice)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("the lab in %s is down, but this is left of it:\n  %s", l.dir, strings.Join(left, "\n  "))
	}
	if err := network.Release(l.dir); err != nil {
		return err
	}
	if err := host.This().Release(ctx, l.dir); err != nil {
		return err
	}
	if err := cache.Release(cmp.Or(s.CacheDir, l.cache), l.dir); err != nil {
		return fmt.Errorf("releasing the cache: %w", err)
	}
	return l.removeFiles()
}

// gone reports whether there is no state directory.
func (l *Lab) gone() bool {
	_, err := os.Stat(l.dir)
	missing := errors.Is(err, fs.ErrNotExist)
	if missing {
		l.progress.Line("there is no lab in " + l.dir)
	}
	return missing
}

func (l *Lab) leftovers(slice network.Slice) ([]string, error) {
	machines, err := machine.Leftovers(l.dir)
	if err != nil {
		return nil, err
	}
	net, err := network.Leftovers(slice)
	return append(machines, net...), err
}

func (l *Lab) stopDaemon(ctx context.Context) error {
	pid, err := l.running()
	if err != nil || pid == 0 {
		return err
	}
	l.progress.Line("stopping the daemon")
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("stopping the daemon (pid %d): %w", pid, err)
	}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		if now, err := l.running(); err != nil || now == 0 {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the daemon (pid %d) did not end within %s", pid, stopTimeout)
		case <-tick.C:
		}
	}
}

// removeFiles removes the lab's files, and its directory if nothing else is in it.
func (l *Lab) removeFiles() error {
	temporary, err := filepath.Glob(l.file(".*.json*"))
	if err != nil {
		return fmt.Errorf("files of the lab: %w", err)
	}
	for _, log := range []string{logFile, callsFile, s3LogFile} {
		names, err := l.logParts(log)
		if err != nil {
			return err
		}
		temporary = append(temporary, names...)
	}
	for _, name := range []string{settingsFile, stateFile, parametersFile, sessionsFile, identitiesFile, balancersFile, bucketsFile, pidFile, lockFile} {
		temporary = append(temporary, l.file(name))
	}
	for _, name := range temporary {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing a file of the lab: %w", err)
		}
	}
	if err := os.RemoveAll(l.file(objectsDir)); err != nil {
		return fmt.Errorf("removing the objects of the lab: %w", err)
	}
	for _, dir := range []string{"machines", "trash", "volumes", "."} {
		_ = os.Remove(l.file(dir)) // stays if something is in it
	}
	return nil
}
