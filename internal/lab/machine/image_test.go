package machine

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/artifact"
)

func TestEnsureImage(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	img, err := EnsureImage(t.Context(), artifact.DefaultCacheDir(), func(s string) { t.Log(s) })
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{
		"usr/sbin/sshd": true, "usr/sbin/haproxy": true, "usr/bin/cloud-init": true, "usr/sbin/nft": true,
		"usr/sbin/conntrack": true, "etc/ssh/ssh_host_rsa_key": false, "etc/machine-id": false,
		"etc/systemd/system/multi-user.target.wants/haproxy.service": false,
	} {
		if _, err := os.Lstat(filepath.Join(img.Dir, path)); (err == nil) != want {
			t.Errorf("%s in the image: %v, want present: %v", path, err, want)
		}
	}
	again, err := EnsureImage(t.Context(), artifact.DefaultCacheDir(), func(s string) { t.Errorf("second call works: %s", s) })
	if err != nil || again != img {
		t.Errorf("second EnsureImage = %v, %v; want %v", again, err, img)
	}
}
