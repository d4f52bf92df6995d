package machine

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
)

const extraUserData = `
write_files:
  - path: /etc/from-user-data
    content: written
runcmd:
  - "echo ran > /root/from-runcmd"
`

func TestMachines(t *testing.T) {
	l := newTestLab(t, Releases[0])
	a, b := l.add(extraUserData), l.add("")
	begin := time.Now()
	l.start(a)
	l.start(b)
	t.Logf("two machines started after %v", time.Since(begin))
	ca := l.await(a)
	t.Logf("first answers after %v", time.Since(begin))
	cb := l.await(b)
	t.Logf("second answers after %v", time.Since(begin))

	t.Run("login", func(t *testing.T) {
		// cloud-init gives root's keys a command that says to log in as admin.
		if got := must(t, ca, "grep -c 'command=.*Please login as the user ..admin' /root/.ssh/authorized_keys"); got != "1" {
			t.Errorf("%s of root's keys are told to log in as admin", got)
		}
		swapped := *a
		swapped.hostKey = b.hostKey
		eventually(t, "another host key is refused", func() bool {
			_, err := l.dial(&swapped, "admin")
			if err == nil {
				t.Fatal("another host key is accepted")
			}
			return strings.Contains(err.Error(), "host key mismatch")
		})
		if got := must(t, ca, `id -un; echo "$SUDO_USER"; hostname; getent ahostsv4 "$(hostname)" | head -n 1 | cut -d' ' -f1`); got != "root\nadmin\n"+a.Hostname+"\n127.0.1.1" {
			t.Errorf("id, user, hostname, address = %q", got)
		}
		if got := must(t, ca, "cat /etc/machine-id"); len(got) != 32 || got == must(t, cb, "cat /etc/machine-id") {
			t.Errorf("machine id %q, want one of its own", got)
		}
	})

	t.Run("user data", func(t *testing.T) {
		if got := must(t, ca, "cat /etc/from-user-data; while [ ! -e /root/from-runcmd ]; do sleep 0.1; done; cat /root/from-runcmd"); got != "writtenran" {
			t.Errorf("user data left %q", got)
		}
		if got := must(t, ca, "timeout 120 cloud-init status --wait"); !strings.HasSuffix(got, "status: done") {
			t.Errorf("cloud-init with scripts: %s", got)
		}
		if got := must(t, cb, "timeout 120 cloud-init status --wait"); !strings.HasSuffix(got, "status: done") {
			t.Errorf("cloud-init without scripts: %s", got)
		}
	})

	t.Run("healthy", func(t *testing.T) {
		if got := must(t, ca, "systemctl is-system-running --wait || systemctl --failed --no-legend"); got != "running" {
			t.Errorf("system is %s", got)
		}
	})

	t.Run("sysctls start with the host's values", func(t *testing.T) {
		for _, key := range []string{"fs/nr_open", "vm/overcommit_memory", "net/netfilter/nf_conntrack_max"} {
			host, err := os.ReadFile("/proc/sys/" + key)
			if got := must(t, ca, "cat /proc/sys/"+key); err != nil || got != strings.TrimSpace(string(host)) {
				t.Errorf("%s = %q, on the host %q (%v)", key, got, host, err)
			}
		}
	})

	// These do what containerd, runc, kubelet and kube-proxy do on a machine.
	for name, script := range map[string]string{
		"cgroups": `
			for d in $(awk '$3 ~ /^cgroup/ { print $2 }' /proc/self/mounts); do
				mkdir -p "$d/kubepods/pod1"; rmdir "$d/kubepods/pod1" "$d/kubepods"
			done`,
		"overlay": `
			for d in /var/lib/containerd /var/lib/kubelet; do
				mkdir $d/l $d/u $d/w $d/m
				mount -t overlay overlay -o lowerdir=$d/l,upperdir=$d/u,workdir=$d/w $d/m
				touch $d/m/x; test -e $d/u/x; umount $d/m; rm -r $d/l $d/u $d/w $d/m
			done`,
		"namespaces": `unshare -m -p -n -i -u -C -f --mount-proc sh -c 'test $$ = 1 && ip link set lo up && hostname x'`,
		"iptables":   `iptables -t nat -A POSTROUTING -m comment --comment x -j MASQUERADE; iptables -t nat -F`,
		"sysctls":    `sysctl -qw net.ipv4.ip_forward=1 net.bridge.bridge-nf-call-iptables=1 vm.overcommit_memory=1 kernel.panic=7 net.netfilter.nf_conntrack_max=99999; test "$(sysctl -n kernel.panic)" = 7`,
		"modules":    `modprobe overlay; modprobe br_netfilter; echo overlay > /etc/modules-load.d/x.conf; systemctl restart systemd-modules-load`,
		"kmsg":       `dd if=/dev/kmsg of=/dev/null count=1 bs=8192 iflag=nonblock`,
		"keyring":    `grep -q . /proc/keys || true; python3 -c 'import ctypes; c = ctypes.CDLL(None, use_errno=True); assert c.syscall(250, 1, b"lab") >= 0, ctypes.get_errno()'`,
		"bpf":        `python3 -c 'import ctypes; c = ctypes.CDLL(None, use_errno=True); a = (ctypes.c_uint32 * 18)(1, 4, 4, 1); assert c.syscall(321, 0, ctypes.byref(a), 72) >= 0, ctypes.get_errno()'`,
		"devices":    `mknod /root/null c 1 3; echo > /root/null; rm /root/null`,
		"shared":     `test "$(findmnt -no PROPAGATION /)" = shared`,
		"nofile":     `systemd-run --quiet --wait -p LimitNOFILE=1048576 -p OOMScoreAdjust=-999 -p Delegate=yes true`,
		"sysrq":      `test ! -e /proc/sysrq-trigger || test "$(stat -c %t:%T /proc/sysrq-trigger)" = 1:3`,
		"no module":  `! modprobe no_such_module 2> /dev/null`,
	} {
		t.Run(name, func(t *testing.T) { must(t, ca, script) })
	}

	t.Run("runc", func(t *testing.T) {
		s, err := ca.NewSession()
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if s.Stdin, err = os.Open(findRunc(t)); err != nil {
			t.Fatal(err)
		}
		if err := s.Run("sudo install -m 0755 /dev/stdin /usr/local/bin/runc"); err != nil {
			t.Fatal(err)
		}
		got := must(t, ca, `
			mkdir -p /var/lib/containerd/bundle/rootfs; cd /var/lib/containerd/bundle; mount --bind / rootfs
			runc spec
			python3 -c '
import json
c = json.load(open("config.json"))
c["process"].update(terminal=False, args=["sh", "-c", "id -u; hostname; head -1 /proc/1/cgroup | cut -d: -f3"])
c["linux"]["resources"].update(memory={"limit": 50000000}, cpu={"quota": 20000, "period": 100000, "cpus": "0"})
c["linux"]["cgroupsPath"] = "/kubepods/one"
json.dump(c, open("config.json", "w"))'
			runc run one; umount rootfs`)
		if !strings.HasPrefix(got, "0\nrunc\n/") {
			t.Errorf("the container says %q", got)
		}
	})

	t.Run("host untouched", func(t *testing.T) {
		for key, not := range map[string]string{"kernel/panic": "7", "net/netfilter/nf_conntrack_max": "99999"} {
			if got, err := os.ReadFile("/proc/sys/" + key); err != nil || strings.TrimSpace(string(got)) == not {
				t.Errorf("%s of the host = %q, %v", key, got, err)
			}
		}
		if mounts, err := mountsBelow(l.stateDir); err != nil || len(mounts) > 0 {
			t.Errorf("mounts in the host's namespace: %v %v", mounts, err)
		}
	})

	t.Run("stop and start keep the disk", func(t *testing.T) {
		must(t, ca, "echo kept | tee /etc/keep > /var/lib/etcd/keep")
		begin := time.Now()
		if err := l.Stop(t.Context(), a.ID); err != nil {
			t.Fatal(err)
		}
		t.Logf("stopped in %v", time.Since(begin))
		console, err := os.ReadFile(l.Console(a.ID))
		if err != nil || !strings.Contains(string(console), "Reached target") || !strings.Contains(string(console), "poweroff.target") {
			t.Errorf("the console shows no orderly shutdown (%v)", err)
		}
		if left := l.newInstance(a.ID).remaining(); l.Running(a.ID) || len(left) > 0 {
			t.Errorf("stopped machine runs: %v, has %v", l.Running(a.ID), left)
		}
		if err := l.Stop(t.Context(), a.ID); err != nil {
			t.Errorf("stop again: %v", err)
		}
		l.start(a)
		ca = l.await(a)
		if got := must(t, ca, "cat /etc/keep /var/lib/etcd/keep"); got != "kept\nkept" {
			t.Errorf("after a restart the disk has %q", got)
		}
	})

	t.Run("power cut", func(t *testing.T) {
		must(t, ca, "echo unsynced > /etc/keep; mkdir -p /sys/fs/cgroup/*/nested/deeper 2> /dev/null || true")
		begin := time.Now()
		if err := l.Kill(t.Context(), a.ID); err != nil {
			t.Fatal(err)
		}
		t.Logf("killed in %v", time.Since(begin))
		if left := l.newInstance(a.ID).remaining(); l.Running(a.ID) || len(left) > 0 {
			t.Errorf("killed machine runs: %v, has %v", l.Running(a.ID), left)
		}
		l.start(a)
		ca = l.await(a)
		if got := must(t, ca, "cat /etc/keep"); got != "unsynced" {
			t.Errorf("after a power cut the disk has %q", got)
		}
	})

	t.Run("reboot", func(t *testing.T) {
		if err := l.AttachVolume(t.Context(), a.ID, Volume{ID: firstVolume, SizeGiB: 1}); err != nil {
			t.Fatal(err)
		}
		must(t, ca, "mkfs.ext4 -q "+firstLink+"; mount "+firstLink+" /mnt; echo kept > /mnt/file")
		before := must(t, ca, "cat /proc/sys/kernel/random/boot_id; systemctl show -p UserspaceTimestampMonotonic --value")
		if err := l.Reboot(t.Context(), a.ID); err != nil {
			t.Fatal(err)
		}
		ca = l.await(a)
		if after := must(t, ca, "cat /proc/sys/kernel/random/boot_id; systemctl show -p UserspaceTimestampMonotonic --value"); after == before {
			t.Error("the machine was not rebooted")
		}
		if !l.Running(a.ID) {
			t.Error("rebooted machine does not run")
		}
		if got := must(t, ca, "mount "+firstLink+" /mnt; cat /mnt/file"); got != "kept" {
			t.Errorf("after a reboot the volume has %q", got)
		}
	})

	t.Run("adoption", func(t *testing.T) {
		l.Close()
		// The image does not exist: machines keep the one they have.
		m, err := NewManager(l.stateDir, Container, []Image{{Dir: "/nonexistent"}})
		if err != nil {
			t.Fatal(err)
		}
		l.Manager = m
		if !l.Running(a.ID) || !l.Running(b.ID) {
			t.Fatalf("running after adoption: %v, %v", l.Running(a.ID), l.Running(b.ID))
		}
		if err := l.Start(t.Context(), a.Spec); err == nil {
			t.Error("an adopted machine can be started twice")
		}
		must(t, ca, "true")
		if err := l.Stop(t.Context(), a.ID); err != nil {
			t.Error(err)
		}
		l.start(a)
		ca = l.await(a)
	})

	t.Run("exit from inside", func(t *testing.T) {
		// A command on the machine's console does not keep the machine from going down.
		console, err := Enter(t.Context(), l.stateDir, a.ID, "sleep", "600")
		if err != nil {
			t.Fatal(err)
		}
		if err := console.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = console.Wait() })
		must(t, ca, "until pgrep -x sleep; do sleep 0.1; done")
		end(ca, "systemctl reboot")
		if !l.awaitExit(a.ID) || l.Running(a.ID) {
			t.Errorf("the exit of a machine that reboots itself does not say so, running %v", l.Running(a.ID))
		}
		l.start(a)
		end(l.await(a), "systemctl poweroff")
		if l.awaitExit(a.ID) || l.Running(a.ID) {
			t.Errorf("the exit of a machine that powers itself off says that it boots again, running %v", l.Running(a.ID))
		}
		leader := l.machines[b.ID].running().leader
		if err := leader.signal(unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		l.awaitExit(b.ID)
		if left := l.newInstance(b.ID).remaining(); len(left) > 0 {
			t.Errorf("dead machine has %v", left)
		}
		l.start(b)
		cb = l.await(b)
	})

	t.Run("dies unwatched", func(t *testing.T) {
		l.Close()
		leader, ok := l.machines[b.ID].leader()
		if !ok {
			t.Fatal("no leader on record")
		}
		if err := leader.signal(unix.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if err := leader.wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		m, err := NewManager(l.stateDir, Container, []Image{l.img})
		if err != nil {
			t.Fatal(err)
		}
		l.Manager = m
		if left := l.newInstance(b.ID).remaining(); l.Running(b.ID) || len(left) > 0 {
			t.Errorf("dead machine runs: %v, has %v", l.Running(b.ID), left)
		}
		l.start(b)
		cb = l.await(b)
	})

	t.Run("terminate", func(t *testing.T) {
		begin := time.Now()
		if err := l.Terminate(t.Context(), b.ID); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took > 2*time.Minute {
			t.Errorf("terminating took %v", took)
		} else {
			t.Logf("terminated in %v", took)
		}
		if left := l.newInstance(b.ID).remaining(); l.Running(b.ID) || len(left) > 0 || exists(string(l.newInstance(b.ID).disk)) {
			t.Errorf("terminated machine has %v", left)
		}
		if err := l.Terminate(t.Context(), b.ID); err != nil {
			t.Errorf("terminate again: %v", err)
		}
		if err := l.Stop(t.Context(), b.ID); err == nil {
			t.Error("a terminated machine can be stopped")
		}
	})
}

// TestSixMachines boots six machines together and logs how long each takes from Start to an SSH
// session with the pinned host key.
func TestSixMachines(t *testing.T) {
	l := newTestLab(t, Releases[0])
	hosts := make([]*testHost, 6)
	for i := range hosts {
		hosts[i] = l.add("")
	}
	begin := time.Now()
	took := make([]time.Duration, len(hosts))
	var all sync.WaitGroup
	for i, h := range hosts {
		all.Go(func() {
			if err := l.Start(t.Context(), h.Spec); err != nil {
				t.Error(err)
				return
			}
			for t.Context().Err() == nil && time.Since(begin) < 3*time.Minute {
				if c, err := l.dial(h, "admin"); err == nil {
					took[i] = time.Since(begin)
					_ = c.Close()
					return
				}
				time.Sleep(10 * time.Millisecond)
			}
			t.Errorf("%s does not answer", h.ID)
		})
	}
	all.Wait()
	t.Logf("from launch to SSH: %v", took)
	begin = time.Now()
	if err := l.Down(t.Context()); err != nil {
		t.Error(err)
	}
	t.Logf("all gone in %v", time.Since(begin))
	if left, err := Leftovers(l.stateDir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

func TestStartFails(t *testing.T) {
	l := newTestLab(t, Releases[0])
	h := l.add("")
	noNetns := h.Spec
	noNetns.Netns = "/run/netns/no-such-namespace"
	noName := h.Spec
	noName.ID = "../escape"
	noHost := h.Spec
	noHost.Hostname = "not a hostname"
	for want, s := range map[string]Spec{"network namespace": noNetns, "invalid id": noName, "Invalid hostname": noHost} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		err := l.Start(ctx, s)
		cancel()
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Start(%+v) = %v, want %q in it", s, err, want)
		}
		if left := l.newInstance(h.ID).remaining(); l.Running(h.ID) || len(left) > 0 {
			t.Errorf("after %q: running %v, left %v", want, l.Running(h.ID), left)
		}
	}
	l.start(h)
	l.await(h)
}

// findRunc returns the path of runc from the lab's mirror, if that is filled, else from the host's
// Debian.
func findRunc(t *testing.T) string {
	t.Helper()
	const inMirror = "mirror/github.com/opencontainers/runc/releases/download/*/runc.amd64"
	if found, _ := filepath.Glob(filepath.Join(cache.DefaultDir(), inMirror)); len(found) > 0 {
		return found[len(found)-1]
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-euc", "apt-get -qq download runc; dpkg-deb -x runc_*.deb .")
	cmd.Dir = t.TempDir()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("runc is neither in the mirror nor in Debian's: %v: %s", err, out)
	}
	return filepath.Join(cmd.Dir, "usr/sbin/runc")
}

// TestBoot checks that every release boots as on EC2: cloud-init's network configuration through
// netplan, the resolver's stub, every stage of cloud-init, apt's sources and timers. The lab's
// first unit is made slow, as on a busy computer: units that need the network's interfaces must
// wait for it.
func TestBoot(t *testing.T) {
	for _, r := range Releases {
		t.Run(r.Codename, func(t *testing.T) {
			l := newTestLab(t, r)
			h := l.add("")
			h.Files = map[string]string{"etc/systemd/system/k8s-lab-early.service.d/slow.conf": "[Service]\nExecStartPre=/bin/sleep 5\n"}
			l.start(h)
			c := l.await(h)
			if got := must(t, c, "timeout 120 cloud-init status --wait"); !strings.HasSuffix(got, "status: done") {
				t.Fatalf("cloud-init: %s\n%s", got, must(t, c, "cloud-init status --long || true"))
			}
			if got := must(t, c, "systemctl is-system-running --wait || systemctl --failed --no-legend"); got != "running" {
				t.Errorf("system is %s", got)
			}
			for script, want := range map[string]string{
				"networkctl --no-legend list ens5 | awk '{ print $4, $5 }'":                "routable configured",
				"cat /sys/class/net/ens5/mtu":                                              "9001",
				"ls /sys/class/net | sort | xargs":                                         "ens5 lo",
				"grep -h '^ *dhcp4:' /etc/netplan/50-cloud-init.yaml | xargs":              "dhcp4: true",
				"readlink -f /etc/resolv.conf":                                             "/run/systemd/resolve/stub-resolv.conf",
				"grep ^nameserver /etc/resolv.conf":                                        "nameserver 127.0.0.53",
				"grep ^nameserver /run/systemd/resolve/resolv.conf":                        "nameserver 10.99.0.2",
				"getent ahostsv4 " + h.Hostname + ".ec2.internal | head -n 1 | cut -c1-9":  "127.0.1.1",
				"cat /etc/apt/mirrors/debian.list":                                         "http://cdn-aws.deb.debian.org/debian",
				"grep -h ^URIs: /etc/apt/sources.list.d/*.sources | cut -d' ' -f2 | xargs": "mirror+file:///etc/apt/mirrors/debian.list mirror+file:///etc/apt/mirrors/debian-security.list",
				"dpkg-divert --truename /usr/bin/cloud-init":                               "/usr/bin/cloud-init.distrib",
				"for p in cron ifup tasksel; do command -v $p || :; done":                  "", // no part of Debian's minimal system
				"systemctl is-active apt-daily.timer apt-daily-upgrade.timer | xargs":      "active active",
				"systemctl is-active unattended-upgrades systemd-logind | xargs":           "active active",
				"cat /proc/1/timerslack_ns":                                                "5000000", // 50000 on EC2: see launch
			} {
				if got := must(t, c, script); got != want {
					t.Errorf("%s prints %q, want %q", script, got, want)
				}
			}
		})
	}
}
