package version

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

func parse(t *testing.T, s string) Version {
	t.Helper()
	v, err := Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestParse(t *testing.T) {
	for in, want := range map[string]string{"1.36.4": "1.36.4", "v1.35.8": "1.35.8", "1.36.0": "1.36.0", "3.6.16": "3.6.16"} {
		v := parse(t, in)
		if v.String() != want || v.Tag() != "v"+want {
			t.Errorf("%s parsed as %s, %s", in, v, v.Tag())
		}
	}
	for _, in := range []string{"", "1", "1.36", "v1.36", "1.36.4-rc.0", "1.36.4+build", "1.036.1", "latest", "stable-1", " 1.36.4", "1.36.4.2", "vv1.36.4", "1.36.99999999999999999999"} {
		if v, err := Parse(in); err == nil {
			t.Errorf("%q parsed as %s", in, v)
		}
	}
}

func TestParseSupported(t *testing.T) {
	for in, want := range map[string]string{
		"1.36.4": "", "v1.35.0": "",
		"1.34.9": "version 1.34.9 is not supported: the supported minors of Kubernetes are 1.35, 1.36 and 1.37",
		"1.38.0": "version 1.38.0 is not supported: the supported minors of Kubernetes are 1.35, 1.36 and 1.37",
		"1.3.60": "version 1.3.60 is not supported: the supported minors of Kubernetes are 1.35, 1.36 and 1.37",
		"2.36.0": "version 2.36.0 is not supported: the supported minors of Kubernetes are 1.35, 1.36 and 1.37",
	} {
		_, err := ParseSupported(in)
		checkError(t, in, err, want)
	}
}

func TestCompare(t *testing.T) {
	if parse(t, "1.36.10").Compare(parse(t, "1.36.9")) != 1 {
		t.Error("patch numbers are compared as text")
	}
	if (Version{}).Compare(parse(t, "0.0.0")) != -1 || (Version{}).Compare(Version{}) != 0 || !(Version{}).IsZero() {
		t.Error("the zero version is not the oldest")
	}
}

func TestCheckUpgrade(t *testing.T) {
	for _, tt := range []struct{ from, to, want string }{
		{"1.35.8", "1.36.4", ""},
		{"1.36.4", "1.36.4", ""},
		{"1.36.4", "1.36.0", ""},
		{"1.36.4", "1.35.9", "cannot go from 1.36.4 back to 1.35.9"},
		{"1.34.0", "1.36.4", "go to 1.35 first"},
		{"1.36.4", "2.0.0", "the major version differs"},
	} {
		checkError(t, tt.from+" to "+tt.to, CheckUpgrade(parse(t, tt.from), parse(t, tt.to)), tt.want)
	}
	checkError(t, "etcd", CheckEtcdUpgrade(parse(t, "3.6.16"), parse(t, "3.5.0")), "the minor version of etcd cannot be lowered")
	checkError(t, "etcd", CheckEtcdUpgrade(parse(t, "3.6.11"), parse(t, "3.7.3")), "")
	checkError(t, "etcd", CheckEtcdUpgrade(parse(t, "3.7.0"), parse(t, "3.7.3")), "")
	checkError(t, "etcd", CheckEtcdUpgrade(parse(t, "3.6.10"), parse(t, "3.7.3")), "members of 3.7 need the others to be 3.6.11 or later, go to 3.6.16 first")
	checkError(t, "etcd", CheckEtcdUpgrade(parse(t, "3.7.3"), parse(t, "3.6.16")), "the minor version of etcd cannot be lowered")
	checkError(t, "etcd", CheckEtcdUpgrade(parse(t, "3.6.16"), parse(t, "3.8.0")), "etcd moves one minor version at a time, go to 3.7 first")
}

func TestSkew(t *testing.T) {
	for _, tt := range []struct {
		check              func(a, b Version) error
		apiserver, v, want string
	}{
		{CheckKubeletSkew, "1.36.4", "1.36.9", ""},
		{CheckKubeletSkew, "1.36.4", "1.33.0", ""},
		{CheckKubeletSkew, "1.36.4", "1.32.0", "4 minor versions behind the API server 1.36.4: at most 3 allowed"},
		{CheckKubeletSkew, "1.35.8", "1.36.4", "kubelet 1.36.4 is newer than the API server 1.35.8: upgrade the control plane first"},
		{CheckKubeletSkew, "1.36.4", "2.36.1", "differ in their major version"},
	} {
		checkError(t, tt.v+" under "+tt.apiserver, tt.check(parse(t, tt.apiserver), parse(t, tt.v)), tt.want)
	}
}

func checkError(t *testing.T, what string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", what, err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: error is %v, wanted %q", what, err, want)
	}
}

func TestEndsSoon(t *testing.T) {
	at := func(s string) time.Time {
		day, err := time.Parse(time.DateOnly, s)
		if err != nil {
			t.Fatal(err)
		}
		return day
	}
	for _, tt := range []struct{ version, now, want string }{
		{"1.35.8", "2026-11-27", ""},
		{"1.35.8", "2026-11-28", "Kubernetes 1.35 reaches its end of life on 2027-02-28: it gets no fixes afterwards, not even for security holes (https://kubernetes.io/releases/1.35/). Upgrade to 1.36.4 next."},
		{"1.35.8", "2027-02-28", "reaches its end of life on 2027-02-28"},
		{"1.35.8", "2027-03-02", "has been at its end of life since 2027-02-28"},
		{"1.36.4", "2026-11-28", ""},
		{"1.36.4", "2027-06-01", "Upgrade to 1.37.1 next."},
		{"1.37.1", "2027-09-01", "Upgrade to a release of this provider that knows a later release of Kubernetes."},
		{"1.34.0", "2027-10-01", ""},
	} {
		got := EndsSoon(parse(t, tt.version), at(tt.now))
		if (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%s on %s: %q, wanted %q", tt.version, tt.now, got, tt.want)
		}
	}
}

// Every release is followed by the next minor, ends later, and has a patch of its own as the
// newest.
func TestReleases(t *testing.T) {
	for i, r := range Releases() {
		v := parse(t, r.Newest)
		if v.MinorString() != r.Minor {
			t.Errorf("the newest patch of %s is %s", r.Minor, r.Newest)
		}
		if got := releaseIndex(v); got != i {
			t.Errorf("%s belongs to release %d, not %d", v, got, i)
		}
		if i == 0 {
			continue
		}
		before := Releases()[i-1]
		if v.Minor() != parse(t, before.Newest).Minor()+1 || !r.EndOfLife.After(before.EndOfLife) {
			t.Errorf("%v follows %v", r, before)
		}
	}
}

// TestGuide checks that the guide's table agrees with the code.
func TestGuide(t *testing.T) {
	guide, err := os.ReadFile("../../templates/guides/upgrades.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range Releases() {
		row := fmt.Sprintf("| [%[1]s](https://kubernetes.io/releases/%[1]s/) | %[2]s | %[3]s |\n", r.Minor, r.Newest, r.EndOfLife.Format(time.DateOnly))
		if !strings.Contains(string(guide), row) {
			t.Errorf("the guide lacks %q", row)
		}
	}
}

func TestNotKnown(t *testing.T) {
	for _, tt := range []struct {
		check         func(Version) string
		version, want string
	}{
		{NotKnown, "1.36.99", "Kubernetes 1.36.99 is later than 1.36.4, the latest 1.36 that this release of the provider knows."},
		{NotKnown, "1.36.4", ""},
		{NotKnown, "1.36.0", ""},
		{NotKnown, "1.40.0", ""}, // refused elsewhere
		{EtcdNotKnown, "3.6.999", "etcd 3.6.999 is later than 3.6.16"},
		{EtcdNotKnown, "3.7.3", ""},
		{EtcdNotKnown, "2.0.0", ""},
	} {
		got := tt.check(parse(t, tt.version))
		if (got == "") != (tt.want == "") || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %q, wanted %q", tt.version, got, tt.want)
		}
	}
	for _, v := range []string{"2.0.0", "3.5.9", "3.8.0"} {
		checkError(t, v, CheckEtcd(parse(t, v)), "the supported minors of etcd are 3.6 and 3.7")
	}
}
