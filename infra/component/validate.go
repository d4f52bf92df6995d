package component

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

func requireCAs(ref pki.Ref, cas ...pki.CAName) error {
	var errs []error
	for _, ca := range cas {
		if ref.Bundle(ca) == "" {
			errs = append(errs, fmt.Errorf("the PKI has no %s CA certificate", ca))
		}
	}
	return errors.Join(errs...)
}

// binary returns the download of an artifact, with what is installed of it.
func binary(from []artifact.Artifact, name string) (desired.Binary, error) {
	a, ok := artifact.Find(from, name)
	if !ok {
		return desired.Binary{}, fmt.Errorf("the artifacts do not include %s", name)
	}
	return download(a), nil
}

func caFile(path, bundle string) desired.File {
	return desired.File{Path: path, Mode: 0o644, Content: []byte(bundle)}
}

func slot(name, certPath, keyPath string, ca pki.CAName, r pki.Request) pki.Slot {
	return pki.Slot{Name: name, CertPath: certPath, KeyPath: keyPath, CA: ca, Request: r, KeyMode: 0o600}
}

// sans sorts names and addresses into DNS names and IPs, each sorted and without duplicates.
func sans(values ...string) (dns []string, ips []netip.Addr, err error) {
	for _, v := range values {
		if v == "" {
			continue
		}
		if ip, err := netip.ParseAddr(v); err == nil {
			ips = append(ips, ip)
			continue
		}
		if msgs := validation.IsDNS1123Subdomain(v); len(msgs) > 0 {
			return nil, nil, fmt.Errorf("%q is neither an address nor a host name: %s", v, strings.Join(msgs, "; "))
		}
		dns = append(dns, v)
	}
	slices.Sort(dns)
	slices.SortFunc(ips, netip.Addr.Compare)
	return slices.Compact(dns), slices.Compact(ips), nil
}

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})
