package plans

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"syscall"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
)

// The variables with which this program, started by Terraform as the provider, knows what to do.
const (
	usageVariable    = "K8S_BENCH_USAGE"    // file that gets a line for each process of the provider
	providerVariable = "K8S_BENCH_PROVIDER" // the provider's program; empty: this one
	profileVariable  = "K8S_BENCH_PROFILE"  // directory for profiles; empty for none
)

// selfProgram, as the provider's program, stands for this one.
const selfProgram = "/proc/self/exe"

// usage is what a process used, as wait4(2) says.
type usage struct {
	CPU    time.Duration `json:"cpu"`    // user and system
	Memory int64         `json:"memory"` // bytes resident at most
	Log    int64         `json:"log"`    // bytes that it has logged
}

// ServeIfPlugin acts as the provider if Terraform has started this program as one: it runs the real
// provider and notes what that used. Otherwise it returns.
func ServeIfPlugin() {
	if !strings.HasPrefix(filepath.Base(os.Args[0]), "terraform-provider-k8s") {
		return
	}
	if dir := os.Getenv(profileVariable); dir != "" {
		os.Exit(profiled(dir))
	}
	program := os.Getenv(providerVariable)
	if program == "" {
		if err := provider.Serve(context.Background(), "bench", false); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	cmd := exec.CommandContext(context.Background(), program, os.Args[1:]...)
	log := &counter{to: os.Stderr}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, log
	cmd.Args[0] = os.Args[0]
	if program == selfProgram {
		cmd.Env = append(os.Environ(), providerVariable+"=")
	}
	// Terraform kills a provider that does not end, and knows only this process.
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	err := cmd.Run()
	if cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := note(cmd.ProcessState, log.n); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(max(cmd.ProcessState.ExitCode(), 0))
}

// counter counts what is written.
type counter struct {
	to io.Writer
	n  int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	return n, err
}

func note(s *os.ProcessState, log int64) error {
	u := usage{CPU: s.UserTime() + s.SystemTime(), Log: log}
	if r, ok := s.SysUsage().(*syscall.Rusage); ok {
		u.Memory = r.Maxrss << 10
	}
	line, err := json.Marshal(u)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(os.Getenv(usageVariable), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return errors.Join(err, f.Close())
}

// profiled serves the provider in this process, and writes a profile of its processor time and one of
// its memory.
func profiled(dir string) int {
	name := fmt.Sprintf("%s/%d-%d", dir, time.Now().UnixMilli(), os.Getpid())
	cpu, err := os.Create(name + ".cpu")
	if err == nil {
		err = pprof.StartCPUProfile(cpu)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	err = provider.Serve(context.Background(), "bench", false)
	pprof.StopCPUProfile()
	heap, created := os.Create(name + ".heap")
	if created == nil {
		created = errors.Join(pprof.Lookup("allocs").WriteTo(heap, 0), heap.Close())
	}
	if err = errors.Join(err, cpu.Close(), created); err != nil {
		return 1
	}
	return 0
}

// used returns what the provider's processes used since the file was last removed: all processor
// time, the memory of the largest, all they have logged, and the number of processes.
func used(file string) (sum usage, processes int, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return usage{}, 0, err
	}
	for line := range strings.Lines(string(text)) {
		var u usage
		if err := json.Unmarshal([]byte(line), &u); err != nil {
			return usage{}, 0, err
		}
		sum.CPU += u.CPU
		sum.Log += u.Log
		sum.Memory = max(sum.Memory, u.Memory)
		processes++
	}
	return sum, processes, nil
}
