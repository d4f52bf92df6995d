package component

import (
	"bytes"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/desired"
)

const (
	podEgressTable = "pod-egress"
	// metadataIP is EC2's instance metadata service, which also returns credentials
	// (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instancedata-data-retrieval.html).
	metadataIP = "169.254.169.254"
)

// addPodEgress adds the rules for traffic of pods that leaves the cluster, and the unit that loads
// them.
func (w *worker) addPodEgress() {
	rules := w.podEgressFile()
	egress := w.m.addRules(PodEgressUnit, "Rules for what pods send out of the cluster", "ip "+podEgressTable, rules, KubeletUnit) // which starts pods
	egress.Check = podEgressCheck(rules.Content)
	w.m.State.Units = append(w.m.State.Units, egress)
}

// podEgressCheck returns a command that fails unless the kernel has as many rules of each kind as
// the file. The kernel lists rules in its own form, so only their number can be compared.
func podEgressCheck(file []byte) string {
	count := func(verdict string) int { return bytes.Count(file, []byte(verdict+"\n")) }
	return fmt.Sprintf(`rules=$(%s list table ip %s 2>/dev/null); for want in 'masquerade fully-random=%d' 'drop=%d'; do `+
		`[ "$(printf '%%s\n' "$rules" | grep -c " ${want%%=*}\$")" = "${want#*=}" ] || { echo 'nftables lacks rules of table ip %s'; exit 1; }; done`,
		nftProgram, podEgressTable, count(" masquerade fully-random"), count(" drop"), podEgressTable)
}

// podEgressRules is loaded with nft -f, which replaces the table at once.
var podEgressRules = template.Must(template.New("").Parse(`{{with .Subnets}}# subnets: {{.}}
{{end}}table ip {{.Table}}
delete table ip {{.Table}}
table ip {{.Table}} {
	chain postrouting {
		type nat hook postrouting priority srcnat; policy accept;
		ip saddr != {{.Pods}} accept
{{- if .Resolvers}}
		# The DNS server of a VPC answers machines only.
		ip daddr { {{.Resolvers}} } masquerade fully-random
{{- end}}
		ip daddr != { {{.Inside}} } oifname != "{{.Bridge}}" masquerade fully-random
	}
	chain forward {
		type filter hook forward priority filter; policy accept;
		# Instance metadata, with the credentials of the instance.
		iifname "{{.Bridge}}" ip daddr {{.Metadata}} drop
	}
}
`))

// podEgressFile masquerades packets of this machine's pods, except packets to pods, services and
// machines that have a route back. In a VPC these are the machines' subnets, whose route tables have
// the routes to pods. With PodRoutes they are the nodes: others in their network (the router with its
// DNS server, load balancers) have no route to pods. It drops what pods send to the metadata service;
// pods in the host's network may use it.
func (w *worker) podEgressFile() desired.File {
	c := w.spec.Cluster
	var subnets, resolvers []string
	inside := []string{c.PodCIDR.String(), c.ServiceCIDR.String()}
	for _, p := range slices.SortedFunc(slices.Values(c.NodeCIDRs), netip.Prefix.Compare) {
		subnets = append(subnets, p.String())
		resolvers = append(resolvers, subnetResolver(p).String())
	}
	comment := ""
	if c.PodRoutes == nil {
		inside = append(inside, subnets...)
	} else {
		// Only for nodeCIDRsOf.
		comment, resolvers = strings.Join(subnets, ", "), nil
		for _, a := range slices.Compact(slices.SortedFunc(maps.Values(c.PodRoutes), netip.Addr.Compare)) {
			inside = append(inside, a.String())
		}
	}
	var b bytes.Buffer
	// Writing strings to memory cannot fail.
	_ = podEgressRules.Execute(&b, map[string]string{
		"Table": podEgressTable, "Bridge": cniBridge, "Metadata": metadataIP, "Pods": w.node.PodCIDR.String(), "Subnets": comment,
		"Inside": strings.Join(inside, ", "), "Resolvers": strings.Join(resolvers, ", "),
	})
	return desired.File{Path: PodEgressPath, Mode: 0o644, Content: b.Bytes()}.Readable()
}

// egressLine finds the networks that podEgressFile lets pods reach with their own addresses: pods,
// services, then the machines' subnets, unless those are in a comment.
var (
	egressLine  = regexp.MustCompile(`ip daddr != \{ [^{}, ]+, [^{}, ]+(?:, )?([^{}]*) \}`)
	subnetsLine = regexp.MustCompile(`^# subnets: (.+)\n`)
)

// nodeCIDRsOf returns the machines' subnets in podEgressFile.
func nodeCIDRsOf(f Found) []netip.Prefix {
	file := f.Files[PodEgressPath]
	m := subnetsLine.FindSubmatch(file)
	if m == nil {
		m = egressLine.FindSubmatch(file)
	}
	if m == nil {
		return nil
	}
	var out []netip.Prefix
	for s := range strings.SplitSeq(string(m[1]), ", ") {
		if p, err := netip.ParsePrefix(s); err == nil {
			out = append(out, p)
		}
	}
	return out
}
