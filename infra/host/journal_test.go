package host

import (
	"strings"
	"testing"
)

func TestTail(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, journal, want string
	}{
		{
			"what it died of",
			"2026-11-20T20:21:29+0000 kube-apiserver[397]: W1120 20:21:29.856146     397 cacher.go:184] Terminating all watchers\n" +
				"2026-11-20T20:21:41+0000 kube-apiserver[1011]: I1120 20:21:41.740530    1011 server.go:150] Version: v1.36.4\n" +
				"2026-11-20T20:21:41+0000 kube-apiserver[1011]: E1120 20:21:41.741862    1011 run.go:72] \"command failed\" err=\"no\"\n" +
				"2026-11-20T20:21:41+0000 systemd[1]: kube-apiserver.service: Failed with result 'exit-code'.",
			"20:21:41 kube-apiserver: \"command failed\" err=\"no\"\n20:21:41 systemd: kube-apiserver.service: Failed with result 'exit-code'.",
		},
		{
			"warnings when there is nothing worse",
			`2026-11-20T20:21:29+0000 etcd[1]: {"level":"info","msg":"a"}` + "\n" + `2026-11-20T20:21:30+0000 etcd[1]: {"level":"warn","msg":"b"}`,
			`20:21:30 etcd: {"level":"warn","msg":"b"}`,
		},
		{
			"anything when there is nothing else",
			"2026-11-20T20:21:29+01:00 x[1]: I1120 20:21:29.1 1 a.go:1] one",
			"20:21:29 x: one",
		},
		{"nothing", "", ""},
	} {
		if got := tail(test.journal, 10); got != test.want {
			t.Errorf("%s:\n%s\nwanted:\n%s", test.name, got, test.want)
		}
	}
	if got := tail(strings.Repeat("line\n", 30)+"line", 4); strings.Count(got, "line") != 4 {
		t.Errorf("too long: %q", got)
	}
}

func TestPortTaken(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"listen tcp 0.0.0.0:6443: bind: address already in use":              "6443",
		"[ALERT] cannot bind socket (Address already in use) [0.0.0.0:6443]": "6443",
		"cannot bind socket (Address already in use) [fe80::1:443]":          "443",
		"listen tcp [::]:10250: bind: address already in use":                "10250",
		"connect: connection refused 10.0.0.1:6443":                          "",
	} {
		got := ""
		if m := portTaken.FindStringSubmatch(said); m != nil {
			got = m[1] + m[2]
		}
		if got != want {
			t.Errorf("%s: %q", said, got)
		}
	}
}
