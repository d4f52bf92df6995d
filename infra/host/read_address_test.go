package host

import "testing"

// TestAddressNetwork reads what ip says of an address.
func TestAddressNetwork(t *testing.T) {
	for line, want := range map[string]string{
		"2: ens5    inet 10.240.0.40/24 brd 10.240.0.255 scope global ens5\\       valid_lft forever": "10.240.0.40/24",
		"2: ens5    inet 10.240.0.9/32 scope global ens5\n":                                           "10.240.0.9/32",
		"":                    "invalid Prefix",
		"2: ens5    inet":     "invalid Prefix",
		"2: ens5    inet ens": "invalid Prefix",
	} {
		if got := addressNetwork(line).String(); got != want {
			t.Errorf("%q: %s, wanted %s", line, got, want)
		}
	}
}
