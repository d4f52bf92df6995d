package qemu

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// probeTimeout is how long a guest under KVM may take to run its first instructions, which takes
// milliseconds.
const probeTimeout = 5 * time.Second

// Accelerator returns what runs the processors of virtual machines here: "kvm", or "tcg", QEMU's own
// emulator, which is ten to twenty times slower. It starts a guest under KVM to find out, since
// there are computers on which KVM can be opened and its guests do not run.
func Accelerator(ctx context.Context) string {
	if _, err := os.Stat("/dev/kvm"); err != nil {
		return "tcg"
	}
	dir, err := os.MkdirTemp("", "k8s-lab-kvm-")
	if err != nil {
		return "tcg"
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	said := filepath.Join(dir, "firmware")
	// QEMU's firmware writes its name to this port when it starts.
	guest := exec.CommandContext(ctx, Program, "-machine", "pc,accel=kvm", "-cpu", "host", "-m", "64", "-nodefaults", "-no-user-config", "-display", "none",
		"-chardev", "file,id=firmware,path="+escape(said), "-device", "isa-debugcon,iobase=0x402,chardev=firmware")
	if guest.Start() != nil {
		return "tcg"
	}
	ended := make(chan struct{})
	go func() { _ = guest.Wait(); close(ended) }()
	defer func() { cancel(); <-ended }()
	for {
		if text, _ := os.ReadFile(said); bytes.Contains(text, []byte("SeaBIOS")) {
			return "kvm"
		}
		select {
		case <-ended:
			return "tcg"
		case <-time.After(20 * time.Millisecond):
		}
	}
}
