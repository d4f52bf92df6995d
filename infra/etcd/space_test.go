package etcd

import "testing"

// TestSpace judges databases by size, data and quota, in MiB.
func TestSpace(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name                         string
		size, inUse, quota           int64
		fragmented, nearlyFull, full bool
	}{
		{"a new cluster", 20, 6, 8192, false, false, false},
		{"mostly free, and small", 1000, 100, 8192, false, false, false},
		{"mostly free, and large", 2048, 1024, 8192, true, false, false},
		{"half of it in use", 2048, 1025, 8192, false, false, false},
		{"of a small quota", 64, 20, 100, true, false, false},
		{"too little to gain", 60, 29, 100, false, false, false},
		{"near the quota, a quarter free", 7400, 6100, 8192, true, false, true},
		{"near the quota, and most of it data", 7400, 6600, 8192, false, true, true},
		{"at the quota, and free inside", 8192, 400, 8192, true, false, true},
		{"at the quota, all of it data", 8192, 8100, 8192, false, true, true},
		{"no quota", 100000, 1, -1, false, false, false},
		{"an unknown quota", 100000, 1, 0, false, false, false},
	} {
		s := Space{tt.size << 20, tt.inUse << 20, tt.quota << 20}
		if s.Fragmented() != tt.fragmented || s.NearlyFull() != tt.nearlyFull || s.Full() != tt.full {
			t.Errorf("%s: fragmented %v, nearly full %v, full %v", tt.name, s.Fragmented(), s.NearlyFull(), s.Full())
		}
	}
	if s := (Status{DBSize: 1}).Space(5); s.Quota != 5 {
		t.Errorf("a quota that is not reported: %d", s.Quota)
	}
	if s := (Status{Quota: -1}).Space(5); s.Quota != -1 {
		t.Errorf("a quota that is off: %d", s.Quota)
	}
}

// TestDefragmentedOnce: a defragmentation leaves nothing to defragment, whatever the sizes are.
// Otherwise every plan would want one.
func TestDefragmentedOnce(t *testing.T) {
	t.Parallel()
	wanted := 0
	for quota := int64(64); quota <= 8192; quota *= 2 {
		for size := int64(0); size <= quota; size += quota / 64 {
			for inUse := int64(0); inUse <= size; inUse += quota / 64 {
				if !(Space{size << 20, inUse << 20, quota << 20}).Fragmented() {
					continue
				}
				wanted++
				// The new file is a little larger than the data.
				after := Space{(inUse + inUse/20) << 20, inUse << 20, quota << 20}
				if after.Fragmented() || after.Full() {
					t.Errorf("%d of %d MiB, %d in use: fragmented %v, full %v after a defragmentation", size, quota, inUse, after.Fragmented(), after.Full())
				}
			}
		}
	}
	if wanted == 0 {
		t.Error("nothing is fragmented")
	}
}

// TestSizeWords writes sizes for people.
func TestSizeWords(t *testing.T) {
	t.Parallel()
	for bytes, want := range map[int64]string{0: "0 B", 512: "512 B", 1536: "1.5 KiB", 100 << 20: "100 MiB", 1<<31 - 1<<27: "1.9 GiB", 5 << 40: "5120 GiB"} {
		if got := SizeWords(bytes); got != want {
			t.Errorf("%d: %q, wanted %q", bytes, got, want)
		}
	}
}
