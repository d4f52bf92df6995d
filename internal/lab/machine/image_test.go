package machine

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cache"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/progress"
)

func TestEnsureImage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	for _, r := range Releases {
		t.Run(r.Codename, func(t *testing.T) {
			img, err := EnsureImage(t.Context(), cache.DefaultDir(), r, Container, progress.To(func(s string) { t.Log(s) }))
			if err != nil {
				t.Fatal(err)
			}
			for path, want := range map[string]bool{
				"usr/sbin/sshd": true, "usr/bin/cloud-init": true, "usr/sbin/netplan": true, "usr/lib/systemd/systemd-resolved": true,
				"usr/bin/unattended-upgrade": true, "usr/sbin/iptables": true, "usr/bin/socat": true, "usr/bin/curl": true,
				"usr/sbin/haproxy": false, "usr/sbin/nft": false, "usr/sbin/runc": false, "usr/sbin/conntrack": false, "sbin/ifup": false,
				"etc/ssh/ssh_host_rsa_key": false, "etc/machine-id": false,
			} {
				if _, err := os.Lstat(filepath.Join(img.Dir, path)); (err == nil) != want {
					t.Errorf("%s in the image: %v, want present: %v", path, err, want)
				}
			}
			if to, err := os.Readlink(filepath.Join(img.Dir, "etc/resolv.conf")); err != nil || to != "../run/systemd/resolve/stub-resolv.conf" {
				t.Errorf("/etc/resolv.conf leads to %q (%v), want the stub of systemd-resolved", to, err)
			}
			// Each package of the recipe is either installed or omitted.
			status, err := os.ReadFile(filepath.Join(img.Dir, "var/lib/dpkg/status"))
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range packageClasses {
				for _, name := range c.packages {
					installed := strings.Contains("\n"+string(status), "\nPackage: "+name+"\n")
					left := slices.ContainsFunc(omitted[Container], func(d difference) bool { return d.what == name })
					if installed == left && (c.release == "" || c.release == r.Version) {
						t.Errorf("package %s of class %s: installed %v, omitted %v", name, c.name, installed, left)
					}
				}
			}
			again, err := EnsureImage(t.Context(), cache.DefaultDir(), r, Container, progress.To(func(s string) { t.Errorf("second call works: %s", s) }))
			if err != nil || again != img {
				t.Errorf("second EnsureImage = %v, %v; want %v", again, err, img)
			}
		})
	}
}

func TestDifferencesHaveReasons(t *testing.T) {
	for _, d := range slices.Concat(omitted[Container], omitted[VirtualMachine], masked) {
		if d.what == "" || d.reason == "" {
			t.Errorf("%q has the reason %q", d.what, d.reason)
		}
	}
}
