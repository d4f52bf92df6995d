package aws

import "testing"

func TestCheckInstanceType(t *testing.T) {
	for name, ok := range map[string]bool{
		"": true, "t3.small": true, "m7i.large": true, "m7i-flex.large": true, "m5dn.metal": true, "c7a.48xlarge": true, "g4dn.xlarge": true, "g5.xlarge": true,
		"g6e.xlarge": true, "gr6.4xlarge": true, "p4de.24xlarge": true, "x2iedn.xlarge": true, "u-6tb1.112xlarge": true, "u7i-12tb.224xlarge": true, "hpc6id.32xlarge": true,
		"inf2.xlarge": true, "trn1n.32xlarge": true, "i7ie.large": true, "z1d.large": true, "t2.micro": true, "mac1.metal": true,
		"t4g.small": false, "m7g.large": false, "m7gd.large": false, "c7gn.large": false, "c6gn.large": false, "r8g.large": false, "x2gd.medium": false, "im4gn.large": false,
		"is4gen.medium": false, "g5g.xlarge": false, "hpc7g.4xlarge": false, "i8ge.large": false, "a1.medium": false, "mac2.metal": false, "mac2-m2.metal": false,
		"t3": false, "t3.": false, "T3.small": false, "t3 .small": false, "t3.small\n": false,
	} {
		if errs := CheckInstanceType(name); (len(errs) == 0) != ok {
			t.Errorf("%q: %v", name, errs.Err())
		}
	}
}
