package workspace

import (
	"syscall"
	"testing"
)

// TestApart looks whether a command has a process group of its own.
func TestApart(t *testing.T) {
	for _, apart := range []bool{false, true} {
		w := Workspace{CLI: "/bin/cat", Dir: t.TempDir(), Apart: apart}
		cmd := w.Command(t.Context())
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		group, err := syscall.Getpgid(cmd.Process.Pid)
		if own := group == cmd.Process.Pid; err != nil || own != apart {
			t.Errorf("apart %t: own process group %t, %v", apart, own, err)
		}
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	}
}
