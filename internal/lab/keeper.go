package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"gopkg.in/natefinch/lumberjack.v2"
)

const (
	// maxRestarts is how often in a row a daemon that ends within steady is started again.
	maxRestarts = 10
	steady      = time.Minute
	// endPatience is how long a daemon may take to end before it is killed.
	endPatience = 15 * time.Second
	// logMiB is the size of a log at which it is rotated; logBackups old ones are kept.
	logMiB     = 10
	logBackups = 2
)

// The first pause before a restart is firstRest. Each further pause is twice as long, up to
// longestRest.
var (
	firstRest   = 100 * time.Millisecond
	longestRest = 10 * time.Second
)

// ready is what a daemon prints once it serves.
const ready = "ready"

// Keep runs the daemon with the command line serve until ctx ends or the daemon ends by itself
// without an error. A daemon that has served and dies is started again; machines and network keep
// running meanwhile. Keep returns the daemon's error if it never served, or if it died maxRestarts
// times in a row.
//
// When this process ends, the daemon's standard input ends, and then the daemon. What it writes to
// standard error is the lab's log.
func (l *Lab) Keep(ctx context.Context, serve []string) error {
	lock, err := l.lock()
	if err != nil {
		return err
	}
	if lock == nil {
		return fmt.Errorf("the lab in %s is running already", l.dir)
	}
	defer lock.Close() //nolint:errcheck // the end of the process unlocks, too
	if err := os.WriteFile(l.file(pidFile), []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		return fmt.Errorf("process id file: %w", err)
	}
	out := l.rotated(logFile)
	defer out.Close() //nolint:errcheck // what was written is in the file
	log := slog.New(slog.NewTextHandler(out, nil))
	served, failed, rest := false, 0, firstRest
	for {
		began := time.Now()
		up, err := runDaemon(ctx, serve, lock, out)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		served = served || up
		if !served {
			log.Error("the daemon could not start", "error", err)
			return fmt.Errorf("the daemon could not start: %w", err)
		}
		if time.Since(began) > steady {
			failed, rest = 0, firstRest
		}
		if failed++; failed > maxRestarts {
			log.Error("the daemon dies again and again: it is not started any more", "error", err)
			return fmt.Errorf("the daemon died %d times in a row: %w", failed, err)
		}
		log.Error("the daemon died and is started again", "error", err, "pause", rest)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
		}
		rest = min(2*rest, longestRest)
	}
}

// runDaemon runs a daemon until it ends, or asks it to end when ctx does. served reports whether it
// got as far as serving. The error is nil if it ended as it was asked to.
func runDaemon(ctx context.Context, serve []string, lock *os.File, log io.Writer) (served bool, err error) {
	cmd := exec.CommandContext(ctx, serve[0], serve[1:]...)
	cmd.Dir = "/"
	cmd.Stderr = log
	cmd.ExtraFiles = []*os.File{lock} // held until the daemon has ended, even if this process dies
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = endPatience
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return false, err
	}
	defer stdin.Close() //nolint:errcheck // nothing is written
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		served = served || lines.Text() == ready
	}
	return served, cmd.Wait()
}

// Attend prepares this process to be the daemon that Keep runs. The context it returns ends with the
// keeper. announce says that the daemon serves.
func Attend(ctx context.Context) (attended context.Context, announce func()) {
	syscall.CloseOnExec(inheritedLock) // machines are this process's children, and outlive it
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel(errors.New("the keeper ended"))
	}()
	return ctx, func() { _, _ = fmt.Println(ready) }
}

// inheritedLock is the descriptor of the lock in a daemon: the first after the standard ones.
const inheritedLock = 3

// rotated returns a log of the lab that keeps its size within bounds. Older parts have the time in
// their name.
func (l *Lab) rotated(name string) io.WriteCloser {
	return &lumberjack.Logger{Filename: l.file(name), MaxSize: logMiB, MaxBackups: logBackups}
}

// logParts returns the files of a log of the lab, oldest first.
func (l *Lab) logParts(name string) ([]string, error) {
	ext := filepath.Ext(name)
	parts, err := filepath.Glob(l.file(strings.TrimSuffix(name, ext) + "-*" + ext)) // sorted, with times in their names
	if err != nil {
		return nil, fmt.Errorf("logs of the lab: %w", err)
	}
	return append(parts, l.file(name)), nil
}

// lock takes the lab's lock, which the keeper holds as long as it runs, and its daemon after it. It
// returns nil if another process has it. Closing the file gives it back.
func (l *Lab) lock() (*os.File, error) {
	f, err := os.OpenFile(l.file(lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock of the lab in %s: %w", l.dir, err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return f, nil
	}
	_ = f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, nil
	}
	return nil, fmt.Errorf("lock of the lab in %s: %w", l.dir, err)
}

// orphanPatience is how long a daemon may outlive its keeper.
const orphanPatience = endPatience + 5*time.Second

// running returns the process id of the lab's keeper, 0 when there is none. It waits for the end of
// a daemon whose keeper was killed.
func (l *Lab) running() (pid int, err error) {
	for deadline := time.Now().Add(orphanPatience); ; time.Sleep(20 * time.Millisecond) {
		if _, err := os.Stat(l.file(lockFile)); errors.Is(err, fs.ErrNotExist) {
			return 0, nil
		}
		lock, err := l.lock()
		if err != nil {
			return 0, err
		}
		if lock != nil {
			return 0, lock.Close()
		}
		raw, err := os.ReadFile(l.file(pidFile))
		if err == nil {
			pid, err = strconv.Atoi(string(raw))
		}
		alive := err == nil && !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH)
		if alive {
			return pid, nil
		}
		if time.Now().After(deadline) {
			return 0, fmt.Errorf("the lab in %s is running, but its process is not known: process id %d: %w", l.dir, pid, errors.Join(err, syscall.ESRCH))
		}
	}
}
