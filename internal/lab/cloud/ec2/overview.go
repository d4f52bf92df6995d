package ec2

import (
	"cmp"
	"fmt"
	"maps"
	"time"
)

// Overview lists every resource. Terminated instances are not listed.
type Overview struct {
	Region       string             `json:"region"`
	NetworkError string             `json:"network_error,omitempty"`
	Instances    []InstanceOverview `json:"instances"`
	VPCs         []NamedOverview    `json:"vpcs"`
	Subnets      []NamedOverview    `json:"subnets"`
	Gateways     []NamedOverview    `json:"internet_gateways"`
	NATGateways  []NamedOverview    `json:"nat_gateways"` // without deleted ones
	// ConnectEndpoints are those of EC2 Instance Connect, without deleted ones.
	ConnectEndpoints []NamedOverview `json:"instance_connect_endpoints"`
	RouteTables      []NamedOverview `json:"route_tables"`
	Groups           []NamedOverview `json:"security_groups"`
	Interfaces       []NamedOverview `json:"network_interfaces"`
	Volumes          []NamedOverview `json:"volumes"`
	Images           []NamedOverview `json:"images"` // the account's own, without deregistered ones and those that k8s-lab publishes
	Snapshots        []NamedOverview `json:"snapshots"`
	Addresses        []NamedOverview `json:"addresses"`
	KeyPairs         []NamedOverview `json:"key_pairs"`
}

// Count is the number of resources in the overview.
func (o Overview) Count() int {
	return len(o.Instances) + len(o.VPCs) + len(o.Subnets) + len(o.Gateways) + len(o.NATGateways) + len(o.ConnectEndpoints) + len(o.RouteTables) + len(o.Groups) +
		len(o.Interfaces) + len(o.Volumes) + len(o.Images) + len(o.Snapshots) + len(o.Addresses) + len(o.KeyPairs)
}

// InstanceOverview is one line of the instance table.
type InstanceOverview struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	State     string    `json:"state"`
	Type      string    `json:"type"`
	VPC       string    `json:"vpc"`
	Zone      string    `json:"zone"`
	PrivateIP string    `json:"private_ip"`
	PublicIP  string    `json:"public_ip,omitempty"`
	Launched  time.Time `json:"launched"`
	Impaired  bool      `json:"impaired,omitempty"`
}

// NamedOverview is any other resource.
type NamedOverview struct {
	ID     string `json:"id"`
	Name   string `json:"name,omitempty"`   // its Name tag
	Detail string `json:"detail,omitempty"` // what people recognise it by: a CIDR, an address, a name
	User   string `json:"user,omitempty"`   // the resource it belongs to or is used by
}

func named[T any](st *state, m map[string]*T, f func(*T) NamedOverview) []NamedOverview {
	out := []NamedOverview{}
	for _, v := range sorted(m) {
		n := f(v)
		n.Name = st.Tags[n.ID]["Name"]
		out = append(out, n)
	}
	return out
}

// userOf returns the instance, the NAT gateway or the load balancer that an Elastic IP is associated with.
func (t *tx) userOf(a *address) string {
	if e := t.st.Interfaces[a.Interface]; e != nil {
		return cmp.Or(e.Instance, e.NATGateway, e.Balancer)
	}
	return ""
}

// Overview returns every resource.
func (c *Compute) Overview() Overview {
	c.netMu.Lock()
	netErr := c.netErr
	c.netMu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	st, t := c.st, &tx{c: c, st: c.st}
	o := Overview{
		Region: c.cfg.Region, Instances: []InstanceOverview{},
		VPCs:     named(st, st.VPCs, func(v *vpc) NamedOverview { return NamedOverview{ID: v.ID, Detail: v.CIDR.String()} }),
		Subnets:  named(st, st.Subnets, func(s *subnet) NamedOverview { return NamedOverview{ID: s.ID, Detail: s.CIDR.String(), User: s.VPC} }),
		Gateways: named(st, st.Gateways, func(g *gateway) NamedOverview { return NamedOverview{ID: g.ID, User: g.VPC} }),
		RouteTables: named(st, st.RouteTables, func(r *routeTable) NamedOverview {
			return NamedOverview{ID: r.ID, Detail: fmt.Sprintf("%d routes", len(r.Routes)), User: r.VPC}
		}),
		Groups: named(st, st.Groups, func(g *group) NamedOverview { return NamedOverview{ID: g.ID, Detail: g.Name, User: g.VPC} }),
		Interfaces: named(st, st.Interfaces, func(e *iface) NamedOverview {
			return NamedOverview{ID: e.ID, Detail: e.PrivateIP.String(), User: cmp.Or(e.Instance, e.NATGateway, e.Balancer, e.ConnectEndpoint)}
		}),
		Volumes: named(st, st.Volumes, func(v *volume) NamedOverview {
			return NamedOverview{ID: v.ID, Detail: fmt.Sprintf("%d GiB %s", v.SizeGiB, v.Type), User: v.Instance}
		}),
		Snapshots: named(st, st.Snapshots, func(s *snapshot) NamedOverview {
			return NamedOverview{ID: s.ID, Detail: fmt.Sprintf("%d GiB, %s", s.SizeGiB, s.State), User: t.userOfSnapshot(s.ID)}
		}),
		Addresses: named(st, st.Addresses, func(a *address) NamedOverview {
			return NamedOverview{ID: a.ID, Detail: a.PublicIP.String(), User: t.userOf(a)}
		}),
		KeyPairs: named(st, st.KeyPairs, func(k *keyPair) NamedOverview { return NamedOverview{ID: k.ID, Detail: k.Name} }),
	}
	registered := maps.Clone(st.Images)
	maps.DeleteFunc(registered, func(_ string, i *Image) bool { return !i.Deregistered.IsZero() })
	o.Images = named(st, registered, func(i *Image) NamedOverview {
		return NamedOverview{ID: i.ID, Detail: i.Name + ", " + t.imageState(i)}
	})
	left := maps.Clone(st.NATGateways)
	maps.DeleteFunc(left, func(_ string, g *natGateway) bool { return g.State == natDeleted })
	o.NATGateways = named(st, left, func(g *natGateway) NamedOverview {
		return NamedOverview{ID: g.ID, Detail: g.State + " in " + g.Zone, User: g.Subnet}
	})
	endpoints := maps.Clone(st.ConnectEndpoints)
	maps.DeleteFunc(endpoints, func(_ string, e *connectEndpoint) bool { return e.State == connectDeleted })
	o.ConnectEndpoints = named(st, endpoints, func(e *connectEndpoint) NamedOverview {
		return NamedOverview{ID: e.ID, Detail: e.State + " in " + e.Zone, User: e.Subnet}
	})
	if netErr != nil {
		o.NetworkError = netErr.Error()
	}
	for _, i := range sorted(st.Instances) {
		if i.State == stateTerminated {
			continue
		}
		item := t.instanceItem(i)
		o.Instances = append(o.Instances, InstanceOverview{
			i.ID, st.Tags[i.ID]["Name"], i.State.String(), i.Type, i.VPC, i.Zone, item.PrivateIP, item.PublicIP, i.LaunchTime, i.Impaired,
		})
	}
	return o
}
