package machine

import (
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/qemu"
)

// TestVirtualMachine boots one virtual machine of each release, and takes it through what an
// instance goes through. Without KVM it takes minutes.
func TestVirtualMachine(t *testing.T) {
	if os.Getenv("K8S_VM") == "" {
		t.Skip("it takes minutes without KVM; K8S_VM=1 runs it")
	}
	for _, r := range Releases {
		t.Run(r.Codename, func(t *testing.T) { testVirtualMachine(t, r) })
	}
}

func testVirtualMachine(t *testing.T, r Release) {
	l := newTestLabOf(t, r, VirtualMachine)
	l.patience = 10 * time.Minute
	h := l.add("")
	began := time.Now()
	l.start(h)
	c := l.await(h)
	t.Logf("figures: Debian %s, %s: SSH answers %.0f s after the start, on kernel %s", r.Version, qemu.Accelerator(t.Context()), time.Since(began).Seconds(), strings.TrimSpace(must(t, c, "uname -r")))
	says := func(script, want string) {
		t.Helper()
		if got := strings.TrimSpace(must(t, c, script)); got != want {
			t.Errorf("%s says %q, want %q", script, got, want)
		}
	}
	says("uname -r | grep -c cloud-amd64", "1")
	says("stat -f -c %T /sys/fs/cgroup", "cgroup2fs")
	says("systemd-detect-virt --container || :", "none")
	says("cat /sys/class/dmi/id/sys_vendor", "Amazon EC2")
	says("cloud-init query platform", "ec2")
	says("findmnt -no SOURCE /", "/dev/vda1")
	says("cat /sys/class/net/ens5/mtu", "9001")
	says("nproc", "2")
	says("systemctl is-system-running --wait || systemctl --failed --no-legend", "running")
	size := func() string { return must(t, c, "lsblk -bndo SIZE /dev/vda") }
	if got := strings.TrimSpace(size()); got != "8589934592" {
		t.Errorf("the root volume has %s bytes", got)
	}
	says("test $(df -k --output=size / | tail -1) -gt 7500000 && echo grown", "grown") // cloud-init did

	t.Run("grow", func(t *testing.T) {
		h.Root.SizeGiB = 10
		if err := l.GrowRoot(t.Context(), h.ID, h.Root); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the kernel sees 10 GiB", func() bool { return strings.TrimSpace(size()) == "10737418240" })
	})
	t.Run("volumes", func(t *testing.T) {
		v := Volume{ID: firstVolume, SizeGiB: 1}
		attach := func() {
			t.Helper()
			if err := l.AttachVolume(t.Context(), h.ID, v); err != nil {
				t.Fatal(err)
			}
		}
		attach()
		eventually(t, "the volume's link", func() bool { return succeeds(c, "test -b "+firstLink) })
		must(t, c, "sudo mkfs.ext4 -q "+firstLink+" && sudo mount "+firstLink+" /mnt && echo kept | sudo tee /mnt/x && sudo umount /mnt")
		v.SizeGiB = 2
		attach()
		eventually(t, "the kernel sees 2 GiB", func() bool {
			return strings.TrimSpace(must(t, c, "lsblk -bndo SIZE "+firstLink)) == "2147483648"
		})
		if err := l.DetachVolume(t.Context(), h.ID, v.ID, false); err != nil {
			t.Fatal(err)
		}
		eventually(t, "no link", func() bool { return succeeds(c, "test ! -e "+firstLink) })
		attach()
		eventually(t, "the volume's link", func() bool { return succeeds(c, "test -b "+firstLink) })
		if got := must(t, c, "sudo mount "+firstLink+" /mnt && cat /mnt/x"); strings.TrimSpace(got) != "kept" {
			t.Errorf("the volume has %q", got)
		}
	})
	t.Run("reboots", func(t *testing.T) {
		id := bootID(c)
		end(c, "sudo systemctl reboot")
		eventually(t, "another boot", func() bool {
			next, err := l.dial(h, "admin")
			if err != nil {
				return false
			}
			c = next
			now := bootID(c)
			return now != "" && now != id
		})
		if !l.Running(h.ID) {
			t.Error("it does not count as running")
		}
	})
	t.Run("adopted", func(t *testing.T) {
		l.Close()
		m, err := NewManager(l.stateDir, VirtualMachine, []Image{l.img})
		if err != nil {
			t.Fatal(err)
		}
		l.Manager = m
		if !l.Running(h.ID) {
			t.Error("it is not running")
		}
	})
	t.Run("stop and start", func(t *testing.T) {
		must(t, c, "echo written > ~/file")
		if err := l.Stop(t.Context(), h.ID); err != nil {
			t.Fatal(err)
		}
		log, err := os.ReadFile(l.Console(h.ID))
		if err != nil || !strings.Contains(string(log), "Power down") {
			t.Errorf("it did not shut down gracefully: %v", err)
		}
		l.start(h)
		c = l.await(h)
		says("cat ~/file", "written")
		says("lsblk -bndo SIZE /dev/vda", "10737418240")
	})
	t.Run("power off from inside", func(t *testing.T) {
		end(c, "sudo systemctl poweroff")
		select {
		case e := <-l.Exits():
			if e.ID != h.ID || e.Reboot {
				t.Errorf("the exit is %+v", e)
			}
		case <-time.After(3 * time.Minute):
			t.Error("it does not end")
		}
	})
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Minute); !is(); time.Sleep(500 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

func succeeds(c *ssh.Client, script string) bool {
	_, err := run(c, script)
	return err == nil
}

// bootID is different after each boot, and empty if the machine does not answer.
func bootID(c *ssh.Client) string {
	id, _ := run(c, "cat /proc/sys/kernel/random/boot_id")
	return id
}
