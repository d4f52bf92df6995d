package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A process is told from a later one with the same pid by its start time, in
// clock ticks since boot (proc_pid_stat(5)).
type process struct {
	pid   int
	start uint64
}

// findProcess reads what identifies the live process with the pid.
func findProcess(pid int) (process, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return process{}, err
	}
	// The command, field 2, is in parentheses and may contain anything.
	_, after, _ := strings.Cut(string(stat[strings.LastIndexByte(string(stat), ')')+1:]), " ")
	fields := strings.Fields(after)
	if len(fields) < 20 {
		return process{}, fmt.Errorf("/proc/%d/stat: unexpected content", pid)
	}
	if fields[0] == "Z" || fields[0] == "X" {
		return process{}, fmt.Errorf("process %d: %w", pid, os.ErrProcessDone)
	}
	start, err := strconv.ParseUint(fields[19], 10, 64)
	if err != nil {
		return process{}, fmt.Errorf("/proc/%d/stat: start time: %w", pid, err)
	}
	return process{pid: pid, start: start}, nil
}

func (p process) String() string { return fmt.Sprintf("%d %d\n", p.pid, p.start) }

func parseProcess(s string) (process, error) {
	var p process
	if _, err := fmt.Sscanf(s, "%d %d", &p.pid, &p.start); err != nil {
		return process{}, fmt.Errorf("pid file: %w", err)
	}
	return p, nil
}

func (p process) alive() bool {
	now, err := findProcess(p.pid)
	return err == nil && now == p
}

// signal sends sig to the process, and to no other that may have got its pid.
func (p process) signal(sig unix.Signal) error {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if !p.alive() {
		return os.ErrProcessDone
	}
	return unix.PidfdSendSignal(fd, sig, nil, 0)
}

// init returns the process that is PID 1 of the namespace below the nspawn
// leader p, once it runs systemd.
func (p process) init() (process, error) {
	children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p.pid, p.pid))
	if err != nil {
		return process{}, err
	}
	for _, field := range strings.Fields(string(children)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			continue
		}
		if comm, _ := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); strings.TrimSpace(string(comm)) == "systemd" {
			return findProcess(pid)
		}
	}
	return process{}, errors.New("no init process")
}

// wait returns when the process has ended, or with the error of ctx. It works for
// processes that are no children of this one, and does not reap those that are.
func (p process) wait(ctx context.Context) error {
	if ended, err := p.waitFD(ctx); err == nil {
		return ended
	}
	for p.alive() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}

// waitFD is wait by means of a pidfd; err says that there is none to be had.
func (p process) waitFD(ctx context.Context) (ended, err error) {
	fd, err := unix.PidfdOpen(p.pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	// Non-blocking, so the runtime's poller waits for it rather than a thread.
	f := os.NewFile(uintptr(fd), "pidfd")
	stop := context.AfterFunc(ctx, func() { _ = f.Close() })
	defer func() {
		if stop() {
			_ = f.Close()
		}
	}()
	if !p.alive() {
		return nil, nil
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	err = conn.Read(func(fd uintptr) bool {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
	})
	if ctx.Err() != nil {
		return context.Cause(ctx), nil
	}
	return nil, err
}
