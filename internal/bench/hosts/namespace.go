package hosts

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// insideVariable is set in the environment of a program that is run by Enter: "init" for the first
// process of the namespaces, "yes" for the program itself.
const insideVariable = "K8S_BENCH_INSIDE"

// Enter runs this program again, with the same arguments, in namespaces of its own: mounts, network
// and processes. In the network every address of the given networks is local. Everything that was
// made there ends with the program, however it ends. Needs root.
//
// Inside, Enter returns true at once. Outside it returns false when the program has ended; the error
// is an *exec.ExitError if it has failed.
func Enter(ctx context.Context, local ...string) (inside bool, err error) {
	switch os.Getenv(insideVariable) {
	case "yes":
		return true, nil
	case "init":
		os.Exit(first(context.WithoutCancel(ctx), local))
	}
	cmd := again(ctx, "init")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID,
		// When the first process of a PID namespace ends, the kernel ends all others.
		Pdeathsig: syscall.SIGKILL,
	}
	return false, cmd.Run()
}

func again(ctx context.Context, inside string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), insideVariable+"="+inside)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	return cmd
}

// first is the first process of the namespaces. It prepares them, runs the program, passes signals on,
// takes the processes whose parents have ended, and returns the program's exit status.
func first(ctx context.Context, local []string) int {
	if err := prepare(local); err != nil {
		fmt.Fprintln(os.Stderr, "preparing the namespaces:", err)
		return 1
	}
	cmd := again(ctx, "yes")
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		for s := range signals {
			_ = cmd.Process.Signal(s)
		}
	}()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return 1
		case pid == cmd.Process.Pid && status.Exited():
			return status.ExitStatus()
		case pid == cmd.Process.Pid:
			return 128 + int(status.Signal())
		}
	}
}

func prepare(local []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("making mounts private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mounting /proc: %w", err)
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return err
	}
	for _, cidr := range local {
		_, to, err := net.ParseCIDR(cidr)
		if err != nil {
			return err
		}
		route := netlink.Route{LinkIndex: lo.Attrs().Index, Dst: to, Table: unix.RT_TABLE_LOCAL, Type: unix.RTN_LOCAL, Scope: unix.RT_SCOPE_HOST}
		if err := netlink.RouteAdd(&route); err != nil {
			return fmt.Errorf("making %s local: %w", cidr, err)
		}
	}
	return nil
}
