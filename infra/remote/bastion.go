package remote

import (
	"net/netip"
	"strings"
)

// Behind returns how to reach h through the bastion: at its private address. The bastion itself is
// reached directly, at the address that names it as the bastion if that is the private one, and
// else at h.Address. It is recognised by its port and one of its addresses: h.Address, the private
// address, or one of others. Empty addresses do not count. Without a bastion, h stays as it is.
//
// Names are not resolved: a bastion that is named by another name than its machine is not
// recognised.
func (h Host) Behind(bastion *Host, private string, others ...string) Host {
	if bastion == nil {
		return h
	}
	if h.port() == bastion.port() {
		for _, a := range append(others, h.Address) {
			if sameAddress(a, bastion.Address) {
				return h
			}
		}
		if sameAddress(private, bastion.Address) {
			h.Address = private
			return h
		}
	}
	h.Bastion, h.Address = bastion, private
	return h
}

// sameAddress reports whether two addresses are the same IP address or name.
func sameAddress(a, b string) bool {
	x, errX := netip.ParseAddr(a)
	y, errY := netip.ParseAddr(b)
	if errX == nil && errY == nil {
		return x == y
	}
	return a != "" && strings.EqualFold(strings.TrimSuffix(a, "."), strings.TrimSuffix(b, "."))
}
