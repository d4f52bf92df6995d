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

// A process is identified by its pid and its start time, in clock ticks since boot
// (proc_pid_stat(5)), since pids are reused.
type process struct {
	pid   int
	start uint64
}

// findProcess returns the live process with the pid.
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

// signal sends sig to the process, and never to another one with the same pid.
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

// init returns the machine's PID 1, a child of the nspawn process p, once it runs systemd.
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

// wait returns when the process has ended, or ctx's error. The process need not be a child; a child
// is not reaped.
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

// waitFD is wait with a pidfd. err says that pidfds do not work here.
func (p process) waitFD(ctx context.Context) (ended, err error) {
	fd, err := unix.PidfdOpen(p.pid, unix.PIDFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	// It is non-blocking, so that the runtime's poller waits for it instead of a thread.
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
