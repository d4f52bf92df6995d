package metadata

import (
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// dnsTTL is the TTL of answers in seconds, as Amazon's resolver uses for these names.
const dnsTTL = 60

// resolver answers for the names EC2 gives instances, and for those of the
// lab's internet. Every other name does not exist, at once: the lab has no way
// out, and a resolver that stays silent costs each machine half a minute at boot.
type resolver struct {
	vpcID  string
	source Source
	public map[string]netip.Addr // names of the internet, in lower case, without a dot at the end
}

// ServeDNS implements dns.Handler.
func (r resolver) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg)
	m.SetReply(q)
	m.RecursionAvailable = true
	m.Rcode = dns.RcodeNameError
	if len(q.Question) == 1 && q.Question[0].Qclass == dns.ClassINET {
		rr, exists := r.answer(q.Question[0])
		if exists {
			m.Rcode = dns.RcodeSuccess
		}
		if rr != nil {
			m.Answer = []dns.RR{rr}
		}
	}
	_ = w.WriteMsg(m) // the asker repeats itself if this gets lost
}

// answer returns the record asked for, and whether the name exists at all.
func (r resolver) answer(q dns.Question) (rr dns.RR, exists bool) {
	name := strings.ToLower(q.Name)
	head := dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET, Ttl: dnsTTL}
	if host, ok := r.reverse(name); ok {
		if q.Qtype == dns.TypePTR {
			rr = &dns.PTR{Hdr: head, Ptr: dns.Fqdn(host)}
		}
		return rr, true
	}
	addr, ok := r.forward(name)
	if ok && q.Qtype == dns.TypeA {
		rr = &dns.A{Hdr: head, A: addr.AsSlice()}
	}
	return rr, ok
}

func (r resolver) forward(name string) (netip.Addr, bool) {
	name = strings.TrimSuffix(name, ".")
	if addr, ok := r.public[name]; ok {
		return addr, true
	}
	host, domain, _ := strings.Cut(name, ".")
	if ip, ok := address(host, "ip-"); ok {
		i, ok := r.source.InstanceByAddress(r.vpcID, ip)
		own := domain == i.Region+".compute.internal" || domain == "ec2.internal"
		return ip, ok && own
	}
	if ip, ok := address(host, "ec2-"); ok && strings.HasSuffix(domain, ".amazonaws.com") {
		// Inside its own VPC a public name leads to the private address.
		if private, ok := r.source.PrivateAddressOf(r.vpcID, ip); ok {
			return private, true
		}
		return ip, true
	}
	return netip.Addr{}, false
}

func address(host, prefix string) (netip.Addr, bool) {
	rest, ok := strings.CutPrefix(host, prefix)
	if !ok {
		return netip.Addr{}, false
	}
	ip, err := netip.ParseAddr(strings.ReplaceAll(rest, "-", "."))
	return ip, err == nil && ip.Is4()
}

func (r resolver) reverse(name string) (string, bool) {
	quads, ok := strings.CutSuffix(name, ".in-addr.arpa.")
	if !ok {
		return "", false
	}
	parts := strings.Split(quads, ".")
	if len(parts) != 4 {
		return "", false
	}
	ip, err := netip.ParseAddr(parts[3] + "." + parts[2] + "." + parts[1] + "." + parts[0])
	if err != nil {
		return "", false
	}
	i, ok := r.source.InstanceByAddress(r.vpcID, ip)
	return i.PrivateName, ok
}
