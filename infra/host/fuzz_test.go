package host

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// FuzzJournal checks what is made of a unit's journal.
func FuzzJournal(f *testing.F) {
	f.Add("2026-11-20T20:21:41+0000 kube-apiserver[1011]: E1120 20:21:41.741862    1011 run.go:72] \"command failed\" err=\"no\"\n", 10)
	f.Add("2026-11-20T20:21:30+0000 etcd[1]: {\"level\":\"warn\",\"msg\":\"b\"}\n\x1b[31m\xff\n", 1)
	f.Fuzz(func(t *testing.T, journal string, lines int) {
		lines = max(1, lines%100)
		got := Journal(t.Context(), said{journal}, "a.service", lines)
		if strings.Contains(got, "\x1b") || !utf8.ValidString(got) || len(got) > 16<<10 {
			t.Errorf("%d bytes: %q", len(got), got)
		}
	})
}

// FuzzCauses checks what is made of the output of a program that failed, and of diagnose.sh.
func FuzzCauses(f *testing.F) {
	f.Add("listen tcp 0.0.0.0:6443: bind: address already in use\nno space left on device", "port\t6443\t10.0.0.1\t7\thaproxy.service\nfull\t/\t/dev/sda1\t0\t100\n")
	f.Add("E: Failed to fetch http://deb/x 404\nSee \"systemctl status x\"", "port\t\n")
	f.Fuzz(func(t *testing.T, output, answer string) {
		_ = Causes(t.Context(), said{answer}, output)
		_ = finding.Words(parseCauses("m", answer))
		_, _ = unfetchedURL(output), withoutHint(output)
	})
}

// FuzzRead checks the readers of what read.sh, systemctl, df and ip print.
func FuzzRead(f *testing.F) {
	f.Add("/etc/a\x00content\x00/etc/b\x00\x00")
	f.Add("/etc/a\x0012 7\x00")
	f.Add("ActiveState=active\nResult=success\nNRestarts=2\n")
	f.Add("2: ens5    inet 10.240.0.40/24 brd 10.240.0.255 scope global ens5")
	f.Add("0b8f\n1\n2\n")
	f.Fuzz(func(t *testing.T, text string) {
		m := said{text}
		_, _ = Read(t.Context(), m, []string{"/etc/a"}, nil)
		_, _ = ReadHead(t.Context(), m, "/etc/a", 7)
		_, _ = ReadRoom(t.Context(), m, "/etc/a")
		_, _ = UnitLife(t.Context(), m, "a.service")
		_, _, _, _ = ReadNoted(t.Context(), m, "/dev/null", UnitFiles{Unit: "a.service"})
		_, _, _ = Starts(t.Context(), m, "a.service")
		_ = addressNetwork(text)
	})
}
