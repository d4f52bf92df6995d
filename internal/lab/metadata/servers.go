package metadata

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/dhcp"
)

const (
	// endpoint is where instances find the metadata service.
	endpoint = "169.254.169.254:80"
	// localResolver is the resolver's second address, outside the VPC's CIDR.
	localResolver = "169.254.169.253"
	// linkMTU is the MTU inside a VPC, in bytes.
	linkMTU = 9001
)

// Listener opens sockets inside a VPC.
type Listener interface {
	ListenTCP(ctx context.Context, vpcID, addr string) (net.Listener, error)
	ListenUDP(ctx context.Context, vpcID, addr string) (net.PacketConn, error)
	// InterfaceAt returns the interface behind the router's link with an index.
	InterfaceAt(vpcID string, link int) (interfaceID string, err error)
}

// Servers runs the metadata service, the resolver and the DHCP server of every VPC.
type Servers struct {
	source Source
	listen Listener
	public map[string]netip.Addr
	log    *slog.Logger
	secret []byte

	mu   sync.Mutex
	vpcs map[string]*servers
}

// servers are the servers of one VPC.
type servers struct {
	http *http.Server
	dns  []*dns.Server
	dhcp net.PacketConn
}

// New returns Servers that serve no VPC yet. public has the public names that the resolvers know,
// in lower case.
func New(source Source, listen Listener, public map[string]netip.Addr, log *slog.Logger) *Servers {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	return &Servers{source: source, listen: listen, public: public, log: log, secret: secret, vpcs: map[string]*servers{}}
}

// Sync starts and stops servers so that exactly the given VPCs are served. vpcs has their CIDRs by
// id.
func (s *Servers) Sync(ctx context.Context, vpcs map[string]netip.Prefix) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, srv := range s.vpcs {
		if _, ok := vpcs[id]; !ok {
			srv.close()
			delete(s.vpcs, id)
		}
	}
	for id, cidr := range vpcs {
		if s.vpcs[id] != nil {
			continue
		}
		srv, err := s.serve(ctx, id, cidr)
		if err != nil {
			return fmt.Errorf("serving metadata, DNS and DHCP in %s: %w", id, err)
		}
		s.vpcs[id] = srv
	}
	return nil
}

// Close stops every server.
func (s *Servers) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, srv := range s.vpcs {
		srv.close()
		delete(s.vpcs, id)
	}
}

func (s *Servers) serve(ctx context.Context, id string, cidr netip.Prefix) (srv *servers, err error) {
	var open []io.Closer
	defer func() {
		for _, socket := range open {
			if err != nil {
				_ = socket.Close()
			}
		}
	}()
	tcp := func(addr string) (l net.Listener) {
		if err == nil {
			if l, err = s.listen.ListenTCP(ctx, id, addr); err == nil {
				open = append(open, l)
			}
		}
		return l
	}
	udp := func(addr string) (c net.PacketConn) {
		if err == nil {
			if c, err = s.listen.ListenUDP(ctx, id, addr); err == nil {
				open = append(open, c)
			}
		}
		return c
	}
	web := tcp(endpoint)
	srv = &servers{
		http: &http.Server{
			Handler:           &service{vpcID: id, source: s.source, secret: s.secret, now: time.Now},
			ReadHeaderTimeout: 10 * time.Second,
		},
		dhcp: udp(dhcp.Listen),
	}
	names := resolver{vpcID: id, source: s.source, public: s.public}
	for _, addr := range []string{base(cidr, 2).String(), localResolver} {
		at := net.JoinHostPort(addr, "53")
		srv.dns = append(srv.dns, &dns.Server{Listener: tcp(at), Handler: names}, &dns.Server{PacketConn: udp(at), Handler: names})
	}
	if err != nil {
		return nil, err
	}
	s.run(id, "the metadata service", func() error {
		return srv.http.Serve(hopListener{web, id, s.source, s.log})
	})
	for _, d := range srv.dns {
		s.run(id, "the resolver", d.ActivateAndServe)
	}
	s.run(id, "the DHCP server", func() error {
		leased := func(mac net.HardwareAddr) { s.source.AddressLeased(id, mac) }
		return dhcp.Serve(srv.dhcp, s.leases(id), leased, s.log)
	})
	return srv, nil
}

// run serves in the background and logs an unexpected end.
func (s *Servers) run(vpcID, what string, serve func() error) {
	go func() {
		if err := serve(); err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			s.log.Error(what+" ended", "vpc", vpcID, "error", err)
		}
	}()
}

// leases returns the source of a VPC's leases. An interface gets only its own.
func (s *Servers) leases(vpcID string) dhcp.Source {
	return func(link int, mac net.HardwareAddr) (dhcp.Lease, bool) {
		i, ok := s.source.InstanceByMAC(vpcID, mac)
		if !ok {
			return dhcp.Lease{}, false
		}
		behind, err := s.listen.InterfaceAt(vpcID, link)
		if err != nil {
			s.log.Warn("the sender of a DHCP request could not be determined", "vpc", vpcID, "error", err)
		}
		return i.lease(), err == nil && behind == i.InterfaceID
	}
}

// lease is an instance's lease, as with the default DHCP option set of an Amazon VPC.
func (i Instance) lease() dhcp.Lease {
	host, domain, _ := strings.Cut(i.PrivateName, ".")
	return dhcp.Lease{
		Address: netip.PrefixFrom(i.PrivateIP, i.SubnetCIDR.Bits()), Router: base(i.SubnetCIDR, 1), Resolver: base(i.VPCCIDR, 2),
		Hostname: host, Domain: domain, MTU: linkMTU,
	}
}

// base returns the n-th address of a network.
func base(network netip.Prefix, n int) netip.Addr {
	addr := network.Masked().Addr()
	for range n {
		addr = addr.Next()
	}
	return addr
}

func (s *servers) close() {
	_ = s.http.Close()
	_ = s.dhcp.Close()
	for _, d := range s.dns {
		_ = d.Shutdown() // fails only if it was not running any more
	}
}
