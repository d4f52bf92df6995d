package metadata

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/miekg/dns"
)

// endpoint is where instances find the metadata service.
const endpoint = "169.254.169.254:80"

// Listener opens sockets inside a VPC.
type Listener interface {
	ListenTCP(ctx context.Context, vpcID, addr string) (net.Listener, error)
	ListenUDP(ctx context.Context, vpcID, addr string) (net.PacketConn, error)
}

// Servers runs the metadata service and the resolver of every VPC.
type Servers struct {
	source Source
	listen Listener
	log    *slog.Logger
	secret []byte

	mu   sync.Mutex
	vpcs map[string]*servers
}

// servers are those of one VPC.
type servers struct {
	http *http.Server
	dns  []*dns.Server
}

// New returns Servers that serve no VPC yet.
func New(source Source, listen Listener, log *slog.Logger) *Servers {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	return &Servers{source: source, listen: listen, log: log, secret: secret, vpcs: map[string]*servers{}}
}

// Sync makes the VPCs served those given, by id, with their CIDRs.
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
			return fmt.Errorf("serving metadata and DNS in %s: %w", id, err)
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

func (s *Servers) serve(ctx context.Context, id string, cidr netip.Prefix) (*servers, error) {
	web, err := s.listen.ListenTCP(ctx, id, endpoint)
	if err != nil {
		return nil, err
	}
	at := netip.AddrPortFrom(cidr.Masked().Addr().Next().Next(), 53).String()
	tcp, err := s.listen.ListenTCP(ctx, id, at)
	if err != nil {
		return nil, errors.Join(err, web.Close())
	}
	udp, err := s.listen.ListenUDP(ctx, id, at)
	if err != nil {
		return nil, errors.Join(err, web.Close(), tcp.Close())
	}
	names := resolver{vpcID: id, source: s.source}
	srv := &servers{
		http: &http.Server{
			Handler:           &service{vpcID: id, source: s.source, secret: s.secret, now: time.Now},
			ReadHeaderTimeout: 10 * time.Second,
		},
		dns: []*dns.Server{{Listener: tcp, Handler: names}, {PacketConn: udp, Handler: names}},
	}
	go func() {
		err := srv.http.Serve(hopListener{web, id, s.source, s.log})
		if err != nil && !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			s.log.Error("the metadata service ended", "vpc", id, "error", err)
		}
	}()
	for _, d := range srv.dns {
		go func() {
			if err := d.ActivateAndServe(); err != nil && !errors.Is(err, net.ErrClosed) {
				s.log.Error("the resolver ended", "vpc", id, "error", err)
			}
		}()
	}
	return srv, nil
}

func (s *servers) close() {
	_ = s.http.Close()
	for _, d := range s.dns {
		_ = d.Shutdown() // fails only if it was not running any more
	}
}
