package extrafile

import (
	"strings"
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

// TestCheck checks which paths the user may have.
func TestCheck(t *testing.T) {
	t.Parallel()
	samples, err := samples()
	if err != nil {
		t.Fatal(err)
	}
	refused := func(role string, f desired.ExtraFile) string {
		if err := Check(role, []desired.ExtraFile{f}).Err(); err != nil {
			return err.Error()
		}
		return ""
	}
	for role, m := range samples {
		paths := m.State.Paths()
		for _, r := range m.State.Retired {
			paths = append(paths, r.Paths...)
		}
		for _, s := range m.Secrets {
			paths = append(paths, s.Path)
		}
		if len(paths) < 5 {
			t.Errorf("%s has only %d paths", role, len(paths))
		}
		for _, p := range paths {
			for other := range samples {
				if refused(other, desired.ExtraFile{Path: p}) == "" {
					t.Errorf("%s of the %s may be placed with the %s", p, role, other)
				}
			}
		}
	}
	const worker = "worker"
	for p, want := range map[string]string{
		"etc/a": "not absolute", "/etc/../a": "clean path", "/etc/a/": "clean path", "/": "clean path", "/etc//a": "clean path", "/etc/a\n": "control character",
		"/run/a": "survive a boot", "/proc/sys/net/a": "survive a boot", "/sys/a": "survive a boot", "/dev/shm/a": "survive a boot", "/tmp/a": "survive a boot",
		"/etc/kubernetes/pki/a.crt": "/etc/kubernetes/pki", "/var/lib/kubelet/config": "/var/lib/kubelet", "/var/lib/etcd/a": "/var/lib/etcd", "/etc/kubernetes": "is a directory of the worker",
		"/var/lib/k8s-from-scratch/claims/a": "directory of the provider", "/etc/containerd/certs.d/a/hosts.toml": "directory of the worker", "/etc/containerd": "is a directory, in which",
		"/etc/systemd/system": "is a directory, in which", "/usr/local/lib/systemd/system/kubelet.service": "takes the place of a unit",
		"/etc/systemd/system/etcd.service.d/a.conf": "changes etcd.service, which belongs to the etcd", "/etc/modules-load.d/k8s-overlay.conf": "file of the worker",
		"/etc/sysctl.d/90-k8s-net.ipv4.ip_forward.conf": "file of the worker",
	} {
		if got := refused(worker, desired.ExtraFile{Path: p}); !strings.Contains(got, want) {
			t.Errorf("%q: got %q, wanted %q", p, got, want)
		}
	}
	for _, p := range []string{"/etc/a.conf", "/opt/a/b", "/etc/systemd/system/kubelet.service.d/a.conf", "/etc/systemd/system/service.d/a.conf", "/etc/systemd/system/exporter.service", "/etc/sysctl.d/99-mine.conf"} {
		if got := refused(worker, desired.ExtraFile{Path: p, Mode: 0o640, Owner: "root", Group: "42", Restarts: []string{"chrony.service", "kubelet.service"}}); got != "" {
			t.Errorf("%s is refused: %s", p, got)
		}
	}
	for want, f := range map[string]desired.ExtraFile{
		"setuid":                           {Mode: 0o4755},
		"others may not write":             {Mode: 0o666},
		`"a b" is not the name`:            {Owner: "a b"},
		`"A" is not the name`:              {Group: "A"},
		`"chrony" is not the full name`:    {Restarts: []string{"chrony"}},
		"etcd.service belongs to the etcd": {Restarts: []string{"etcd.service"}},
		"65537 bytes":                      {Content: make([]byte, MaxSize+1)},
	} {
		f.Path = "/etc/a"
		if got := refused(worker, f); !strings.Contains(got, want) || !strings.HasPrefix(got, `extra_files["/etc/a"]: `) {
			t.Errorf("got %q, wanted %q", got, want)
		}
	}
	if got := Check(worker, make([]desired.ExtraFile, MaxFiles+1)).Err().Error(); !strings.Contains(got, "101 files") {
		t.Errorf("got %s", got)
	}
}
