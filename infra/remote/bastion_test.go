package remote

import "testing"

func TestBehind(t *testing.T) {
	const private = "10.240.0.30"
	for name, tt := range map[string]struct {
		host    Host
		bastion *Host
		others  []string
		address string
		direct  bool
	}{
		"no bastion":                      {Host{Address: "198.51.100.7"}, nil, nil, "198.51.100.7", true},
		"another machine":                 {Host{Address: "198.51.100.7"}, &Host{Address: "198.51.100.9"}, nil, private, false},
		"the bastion":                     {Host{Address: "198.51.100.7", Port: 22}, &Host{Address: "198.51.100.7"}, nil, "198.51.100.7", true},
		"by its private address":          {Host{Address: "198.51.100.7"}, &Host{Address: private}, nil, private, true},
		"by a further address":            {Host{Address: "198.51.100.7"}, &Host{Address: "198.51.100.9"}, []string{"", "198.51.100.9"}, "198.51.100.7", true},
		"by its name":                     {Host{Address: "lb.example.com."}, &Host{Address: "LB.example.com"}, nil, "lb.example.com.", true},
		"another port of the same router": {Host{Address: "198.51.100.7", Port: 2201}, &Host{Address: "198.51.100.7", Port: 2200}, nil, private, false},
		"no address is known":             {Host{}, &Host{}, []string{""}, private, false},
	} {
		got := tt.host.Behind(tt.bastion, private, tt.others...)
		if got.Address != tt.address || (got.Bastion == nil) != tt.direct {
			t.Errorf("%s: at %s, directly: %v", name, got.Address, got.Bastion == nil)
		}
	}
}
