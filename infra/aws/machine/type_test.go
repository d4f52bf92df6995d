package machine

import (
	"testing"
)

func TestCheckInstanceType(t *testing.T) {
	for name, ok := range map[string]bool{
		"": true, "t3.small": true, "m7i-flex.large": true, "t4g.small": true, "u-6tb1.112xlarge": true, "mac2-m2.metal": true,
		"t3": false, "t3.": false, "T3.small": false, "t3 .small": false, "t3.small\n": false,
	} {
		if errs := CheckInstanceType(name); (len(errs) == 0) != ok {
			t.Errorf("%q: %v", name, errs.Err())
		}
	}
}

// TestCheckDataVolumeType: types with Xen name no device after its volume.
func TestCheckDataVolumeType(t *testing.T) {
	for name, ok := range map[string]bool{
		"": true, "t3.small": true, "t3a.small": true, "m5.large": true, "c5n.large": true, "i3en.large": true, "i3.metal": true, "p3dn.24xlarge": true, "x2iedn.xlarge": true, "g4dn.xlarge": true,
		"m1.small": false, "t2.micro": false, "m4.large": false, "c4.large": false, "r4.large": false, "i3.large": false, "x1.16xlarge": false, "x1e.xlarge": false, "g3s.xlarge": false,
		"p3.2xlarge": false, "d2.xlarge": false,
	} {
		if errs := CheckDataVolumeType(name); (len(errs) == 0) != ok {
			t.Errorf("%q: %v", name, errs.Err())
		}
	}
}

func TestArchitecture(t *testing.T) {
	for want, names := range map[string][]string{
		"amd64": {"", "t3.small", "m7i.large", "m7i-flex.large", "m5dn.metal", "c7a.48xlarge", "g4dn.xlarge", "g5.xlarge", "g6e.xlarge", "gr6.4xlarge", "p4de.24xlarge", "x2iedn.xlarge",
			"u-6tb1.112xlarge", "u7i-12tb.224xlarge", "hpc6id.32xlarge", "inf2.xlarge", "trn1n.32xlarge", "i7ie.large", "z1d.large", "t2.micro", "mac1.metal"},
		"arm64": {"t4g.small", "m7g.large", "m7gd.large", "c7gn.large", "c6gn.large", "r8g.large", "x2gd.medium", "im4gn.large", "is4gen.medium", "g5g.xlarge", "hpc7g.4xlarge",
			"i8ge.large", "a1.medium", "mac2.metal", "mac2-m2.metal"},
	} {
		for _, name := range names {
			if got := Architecture(name); got != want {
				t.Errorf("%q: %s, wanted %s", name, got, want)
			}
		}
	}
}
