package metadata

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/ipv4"
)

// Headers of version 2 (EC2 user guide, "Use the Instance Metadata Service").
const (
	tokenHeader = "X-Aws-Ec2-Metadata-Token"
	ttlHeader   = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
	maxTokenTTL = 21600
)

// service is the metadata service of one VPC.
type service struct {
	vpcID  string
	source Source
	secret []byte // signs tokens; a new one at each start of the daemon, so that earlier tokens end
	now    func() time.Time
}

func remote(addr string) netip.Addr {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap()
}

// ServeHTTP implements the metadata service. The source address, which the router keeps from being
// forged, says which instance asks.
func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Server", "EC2ws")
	w.Header().Set("Content-Type", "text/plain")
	i, ok := s.source.InstanceByAddress(s.vpcID, remote(r.RemoteAddr))
	switch {
	case !ok:
		http.Error(w, "Not Found", http.StatusNotFound)
		return
	case !i.Enabled:
		http.Error(w, "Forbidden", http.StatusForbidden)
		return
	case r.Method == http.MethodPut:
		s.giveToken(w, r, i)
		return
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
		return
	}
	token := r.Header.Get(tokenHeader)
	if (token != "" || i.TokenRequired) && !s.valid(token, i.ID) {
		http.Error(w, "Unauthorized", http.StatusUnauthorized)
		return
	}
	path := strings.TrimPrefix(r.URL.Path, "/")
	if path == "" {
		_, _ = io.WriteString(w, strings.Join(versions, "\n"))
		return
	}
	version, rest, _ := strings.Cut(path, "/")
	identity, err := s.identity(i, rest)
	if err != nil {
		http.Error(w, "Internal Server Error", http.StatusInternalServerError)
		return
	}
	body, found := i.lookup(rest, identity)
	if !found || !slices.Contains(versions, version) {
		http.Error(w, "Not Found", http.StatusNotFound)
		return
	}
	if rest == "user-data" {
		w.Header().Set("Content-Type", "application/octet-stream")
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = io.WriteString(w, body)
}

// identity returns what a request for a path sees below iamPath. It issues credentials only for a
// path that shows them.
func (s *service) identity(i Instance, path string) (map[string]string, error) {
	if i.Profile == nil {
		return nil, nil
	}
	if !strings.HasPrefix(path+"/", iamPath+"/") {
		return map[string]string{iamPath + "/info": ""}, nil // for the list of categories
	}
	r, err := s.source.Role(i)
	if err != nil {
		return nil, err
	}
	return i.identityLeaves(r), nil
}

func (s *service) giveToken(w http.ResponseWriter, r *http.Request, i Instance) {
	switch ttl, err := strconv.Atoi(r.Header.Get(ttlHeader)); {
	case strings.Trim(r.URL.Path, "/") != "latest/api/token":
		http.Error(w, "Not Found", http.StatusNotFound)
	case r.Header.Get("X-Forwarded-For") != "":
		http.Error(w, "Forbidden", http.StatusForbidden)
	case err != nil || ttl < 1 || ttl > maxTokenTTL:
		http.Error(w, "Bad Request", http.StatusBadRequest)
	default:
		w.Header().Set(ttlHeader, strconv.Itoa(ttl))
		_, _ = io.WriteString(w, s.token(i.ID, s.now().Add(time.Duration(ttl)*time.Second)))
	}
}

// token returns a token: its expiry, signed together with the instance it is for.
func (s *service) token(instanceID string, expires time.Time) string {
	stamp := binary.BigEndian.AppendUint64(nil, uint64(expires.Unix()))
	mac := hmac.New(sha256.New, s.secret)
	mac.Write(stamp)
	mac.Write([]byte(instanceID))
	return base64.URLEncoding.EncodeToString(mac.Sum(stamp))
}

func (s *service) valid(token, instanceID string) bool {
	raw, err := base64.URLEncoding.DecodeString(token)
	if err != nil || len(raw) < 8 {
		return false
	}
	expires := time.Unix(int64(binary.BigEndian.Uint64(raw[:8])), 0)
	return hmac.Equal([]byte(token), []byte(s.token(instanceID, expires))) && s.now().Before(expires)
}

// hopListener sets the TTL of answers to the instance's hop limit: with 1 they do not reach
// containers on the instance.
type hopListener struct {
	net.Listener
	vpcID  string
	source Source
	log    *slog.Logger
}

// Accept implements net.Listener.
func (l hopListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	hops := 1
	if i, ok := l.source.InstanceByAddress(l.vpcID, remote(conn.RemoteAddr().String())); ok {
		hops = i.HopLimit
	}
	if err := ipv4.NewConn(conn).SetTTL(hops); err != nil {
		l.log.WarnContext(context.Background(), "the hop limit of a metadata connection could not be set", "vpc", l.vpcID, "error", err)
	}
	return conn, nil
}
