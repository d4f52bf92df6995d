package deed

import "testing"

// FuzzReports checks the readers of what deeds print.
func FuzzReports(f *testing.F) {
	f.Add("device yes\nuuid 1-2\nmounted vol-1\nelsewhere /mnt\nfile /a 12\nunlinked etcd.service\nsmall yes\n")
	f.Add("etcd.service 1\nbad flag\x00kubelet.service 0\n\x00")
	f.Fuzz(func(t *testing.T, report string) {
		_ = readDataVolumeUse(report, DataVolume{})
		_ = rehearsedIn(report)
	})
}
