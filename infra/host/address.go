package host

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/remote"
)

// AddressNetwork returns an address of the machine with the length of its network, as its interface has it; the
// zero Prefix if no interface has the address. It is not known on a machine without the program ip.
func AddressNetwork(ctx context.Context, r Runner, address netip.Addr) (found netip.Prefix, known bool, err error) {
	out, err := r.Run(ctx, remote.Command{Script: "ip -4 -o address show to " + address.String()})
	var failed *remote.ExitError
	if errors.As(err, &failed) {
		return found, false, nil
	}
	if err != nil {
		return found, false, err
	}
	return addressNetwork(string(out.Stdout)), true, nil
}

// addressNetwork reads a line such as "2: ens5    inet 10.240.0.40/24 brd 10.240.0.255 scope global ens5".
func addressNetwork(line string) netip.Prefix {
	fields := strings.Fields(line)
	if i := slices.Index(fields, "inet"); i >= 0 && i+1 < len(fields) {
		if p, err := netip.ParsePrefix(fields[i+1]); err == nil {
			return p
		}
	}
	return netip.Prefix{}
}
