// Package outside has the servers in the internet of the local EC2: an archive of Debian packages,
// and a web server that answers with the client's address. It also has the name of the AWS APIs there,
// whose handler is package cloud's, and the [Line] to servers other than the APIs.
//
// The servers are HTTP handlers. They know nothing of networks, of the EC2 API, or of the address they are
// served on.
package outside

import "net/netip"

// WebName is the DNS name of the server that [Web] makes.
const WebName = "outside.k8s-lab.test"

// APIName is the DNS name of the AWS APIs for programs on instances.
const APIName = "aws.k8s-lab.test"

// archiveNames are the DNS names of the archive: those that Debian's EC2 images and cloud-init's
// templates use.
var archiveNames = []string{"deb.debian.org", "cdn-aws.deb.debian.org", "security.debian.org"}

// Names returns the DNS names of the servers with their addresses.
func Names(archive, web, api netip.Addr) map[string]netip.Addr {
	names := map[string]netip.Addr{WebName: web, APIName: api}
	for _, name := range archiveNames {
		names[name] = archive
	}
	return names
}
