package machine

import (
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/testbed"
)

// TestVariants boots a machine of each variant, and looks at what differs there.
func TestVariants(t *testing.T) {
	l := newTestLab(t, Releases[0])
	// Without it useradd wants to make a group of the user's name.
	inGroup := "users:\n- name: admin\n  primary_group: admin\n  sudo: ALL=(ALL) NOPASSWD:ALL\n  ssh_authorized_keys:\n  - " + testbed.AuthorizedKey(l.network.Key.PublicKey()) + "\n"
	published := 0
	for name, want := range map[string]struct{ script, prints string }{
		"admin-group":          {"getent group admin | cut -d: -f3 | grep -c '^[1-9][0-9]\\{0,2\\}$'", "1"}, // a group of the system
		"large":                {"echo as Debian", "as Debian"},
		"hardened-sshd":        {"sshd -T | grep -i ^allowtcpforwarding", "allowtcpforwarding no"},
		"noexec-tmp":           {"printf '#!/bin/sh\\necho runs\\n' >/tmp/x; chmod +x /tmp/x; /tmp/x 2>/dev/null || echo refused", "refused"},
		"fips":                 {"sshd -T -f /root/variant.conf | grep ^hostkeyalgorithms", "hostkeyalgorithms " + fipsKeys},
		"upgrades-and-reboots": {"grep -c '^  mode: reboot' /etc/cloud/cloud.cfg.d/95-variant.cfg", "1"},
	} {
		t.Run(name, func(t *testing.T) {
			img, err := l.img.As(name)
			if err != nil {
				t.Fatal(err)
			}
			published++
			img = img.Republished(published)
			l.Publish(img)
			config := ""
			if name == "admin-group" {
				config = inGroup
			}
			h := l.add(config)
			h.Image = img.ID
			if name == "fips" { // the key of this test is of ed25519, and nobody can log in
				h.Image, h.Files = l.img.ID, map[string]string{"root/variant.conf": img.variantFiles()[sshdSettings]}
			}
			l.start(h)
			out, err := run(l.await(h), want.script)
			if got := strings.TrimSpace(out); err != nil || got != want.prints {
				t.Errorf("%q: %v, wanted %q", got, err, want.prints)
			}
		})
	}
}

// TestAs: a variant is an image of its own, and each publication has another id.
func TestAs(t *testing.T) {
	base := Image{ID: "ami-00000000000000001", Name: "debian-13", Release: "13", Dir: "/images/debian"}
	seen := map[string]bool{base.ID: true}
	for n, name := range append(Variants(), "fips") {
		img, err := base.As(name)
		if err != nil {
			t.Fatal(err)
		}
		img = img.Republished(n + 1)
		if seen[img.ID] || img.Release != "" || img.Dir != base.Dir || !strings.Contains(img.Name, name) {
			t.Errorf("%+v", img)
		}
		seen[img.ID] = true
		if v := variants[name]; len(img.variantFiles()) == 0 && v.sizeGiB == 0 {
			t.Errorf("%s differs in nothing", name)
		}
	}
	if _, err := base.As("windows"); err == nil || !strings.Contains(err.Error(), "admin-group, fips") {
		t.Errorf("an unknown variant: %v", err)
	}
	if files := base.variantFiles(); len(files) > 0 {
		t.Errorf("Debian's image with %v", files)
	}
}
