package pki_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/netip"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/pki"
)

func Example() {
	ctx := context.Background()
	now := time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)
	store := pki.NewMemoryStore(nil)

	ref, err := pki.Bootstrap(ctx, store, "demo", now, rand.Reader, pki.Options{Store: pki.StoreSSM})
	if err != nil {
		fmt.Println(err)
		return
	}
	key, err := store.Get(ctx, ref.IssuingKey(pki.EtcdCA))
	if err != nil {
		fmt.Println(err)
		return
	}
	ca, err := pki.LoadAuthority(pki.KeyPair{CertPEM: []byte(ref.Bundle(pki.EtcdCA)), KeyPEM: key})
	if err != nil {
		fmt.Println(err)
		return
	}
	request := pki.Request{
		CommonName: "controller-0",
		DNSNames:   []string{"controller-0"},
		IPs:        []netip.Addr{netip.MustParseAddr("10.240.0.10")},
		Server:     true,
		Client:     true,
	}
	leaf, err := ca.Issue(request, now, rand.Reader)
	if err != nil {
		fmt.Println(err)
		return
	}
	check := func(at time.Time) []finding.Finding {
		return pki.Check(leaf.CertPEM, []byte(ref.EtcdCA), request, at, 30*24*time.Hour)
	}
	fmt.Println("today:", len(check(now)), "reasons to reissue")
	fmt.Println("in eleven months and a half:", check(now.AddDate(0, 11, 15))[0])
	// Output:
	// today: 0 reasons to reissue
	// in eleven months and a half: certificate: expires on 2027-05-01T12:00:00Z and is due for renewal since 2027-04-01T12:00:00Z
}
