// Package outside is what lies beyond the internet gateway of the local EC2: an
// archive of Debian packages, and a web server that tells who asked it.
//
// Both are HTTP handlers, and know neither networks nor the EC2 API. Whoever
// serves them decides where they can be reached.
package outside

import "net/netip"

// WebName is the DNS name of the server that [Web] makes.
const WebName = "outside.k8s-lab.test"

// archiveNames are the DNS names of the archive: those that Debian's images for
// EC2 and cloud-init's templates know.
var archiveNames = []string{"deb.debian.org", "cdn-aws.deb.debian.org", "security.debian.org"}

// Names returns the DNS names of the outside, with the addresses that the
// archive and the web server are at.
func Names(archive, web netip.Addr) map[string]netip.Addr {
	names := map[string]netip.Addr{WebName: web}
	for _, name := range archiveNames {
		names[name] = archive
	}
	return names
}
