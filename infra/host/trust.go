package host

import (
	"path"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

// authorities is the path of [desired.AuthoritiesPath].
func (l layout) authorities() string { return path.Join("/", l.root, desired.AuthoritiesPath) }

// trust makes the machine trust the authorities of a state, if there are any, before it downloads anything.
func (s *script) trust(want desired.State) {
	if want.Authorities != "" {
		s.call("trust", append([]string{strings.TrimRight(want.Authorities, "\n")}, want.AuthorityReaders...)...)
	}
}
