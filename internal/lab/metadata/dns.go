package metadata

import (
	"math/rand/v2"
	"net/netip"
	"strings"

	"github.com/miekg/dns"
)

// dnsTTL is the TTL of answers in seconds, as Amazon's resolver uses.
const dnsTTL = 60

// resolver resolves the names that EC2 gives to instances and load balancers, and the public names.
// For every other name it answers at once that it does not exist: the lab has no way to the real
// internet, and a resolver that stays silent delays each machine's boot by half a minute.
type resolver struct {
	vpcID  string
	source Source
	public map[string]netip.Addr // public names, in lower case, without a dot at the end
}

// ServeDNS implements dns.Handler.
func (r resolver) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg)
	m.SetReply(q)
	m.RecursionAvailable = true
	m.Rcode = dns.RcodeNameError
	if len(q.Question) == 1 && q.Question[0].Qclass == dns.ClassINET {
		records, exists := r.answer(q.Question[0])
		if exists {
			m.Rcode = dns.RcodeSuccess
		}
		m.Answer = records
	}
	_ = w.WriteMsg(m) // the client tries again if this is lost
}

// answer returns the records asked for, and whether the name exists at all. The addresses of a load balancer
// come in any order.
func (r resolver) answer(q dns.Question) (records []dns.RR, exists bool) {
	name := strings.ToLower(q.Name)
	head := dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET, Ttl: dnsTTL}
	if host, ok := r.reverse(name); ok {
		if q.Qtype == dns.TypePTR {
			records = []dns.RR{&dns.PTR{Hdr: head, Ptr: dns.Fqdn(host)}}
		}
		return records, true
	}
	if addrs, ok := r.source.BalancerAddresses(strings.TrimSuffix(name, ".")); ok {
		for _, n := range rand.Perm(len(addrs)) {
			if q.Qtype == dns.TypeA {
				records = append(records, &dns.A{Hdr: head, A: addrs[n].AsSlice()})
			}
		}
		return records, true
	}
	addr, ok := r.forward(name)
	if ok && q.Qtype == dns.TypeA {
		records = []dns.RR{&dns.A{Hdr: head, A: addr.AsSlice()}}
	}
	return records, ok
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
	if ip, ok := address(host, "ec2-"); ok && (strings.HasSuffix(domain, ".amazonaws.com") || strings.HasSuffix(domain, ".amazonaws.com.cn")) {
		// Inside its own VPC a public name resolves to the private address.
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
