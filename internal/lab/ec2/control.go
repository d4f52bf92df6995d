package ec2

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/ec2/fault"
)

// controlPrefix is where the control endpoint lives, beside the AWS APIs.
const controlPrefix = "/_lab/"

// Overview is everything that exists, for people and for tests that assert
// that nothing is left. Terminated instances do not count as existing.
type Overview struct {
	Region       string             `json:"region"`
	NetworkError string             `json:"network_error,omitempty"`
	Instances    []InstanceOverview `json:"instances"`
	VPCs         []NamedOverview    `json:"vpcs"`
	Subnets      []NamedOverview    `json:"subnets"`
	Gateways     []NamedOverview    `json:"internet_gateways"`
	RouteTables  []NamedOverview    `json:"route_tables"`
	Groups       []NamedOverview    `json:"security_groups"`
	Interfaces   []NamedOverview    `json:"network_interfaces"`
	Volumes      []NamedOverview    `json:"volumes"`
	Addresses    []NamedOverview    `json:"addresses"`
	KeyPairs     []NamedOverview    `json:"key_pairs"`
	Parameters   []string           `json:"parameters"`
	Total        int                `json:"total"` // of all of the above
}

// InstanceOverview is one line of the instance table.
type InstanceOverview struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	State     string    `json:"state"`
	Type      string    `json:"type"`
	VPC       string    `json:"vpc"`
	PrivateIP string    `json:"private_ip"`
	PublicIP  string    `json:"public_ip,omitempty"`
	Launched  time.Time `json:"launched"`
	Impaired  bool      `json:"impaired,omitempty"`
}

// NamedOverview is any other resource.
type NamedOverview struct {
	ID     string `json:"id"`
	Name   string `json:"name,omitempty"`   // its Name tag
	Detail string `json:"detail,omitempty"` // what a person tells it by: a CIDR, an address, a name
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

// Overview describes everything that exists.
func (c *Cloud) Overview() Overview {
	c.netMu.Lock()
	netErr := c.netErr
	c.netMu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	st, t := c.st, &tx{c: c, st: c.st}
	o := Overview{
		Region: c.cfg.Region, Instances: []InstanceOverview{}, Parameters: c.params.Names(),
		VPCs:     named(st, st.VPCs, func(v *vpc) NamedOverview { return NamedOverview{ID: v.ID, Detail: v.CIDR.String()} }),
		Subnets:  named(st, st.Subnets, func(s *subnet) NamedOverview { return NamedOverview{ID: s.ID, Detail: s.CIDR.String(), User: s.VPC} }),
		Gateways: named(st, st.Gateways, func(g *gateway) NamedOverview { return NamedOverview{ID: g.ID, User: g.VPC} }),
		RouteTables: named(st, st.RouteTables, func(r *routeTable) NamedOverview {
			return NamedOverview{ID: r.ID, Detail: fmt.Sprintf("%d routes", len(r.Routes)), User: r.VPC}
		}),
		Groups: named(st, st.Groups, func(g *group) NamedOverview { return NamedOverview{ID: g.ID, Detail: g.Name, User: g.VPC} }),
		Interfaces: named(st, st.Interfaces, func(e *iface) NamedOverview {
			return NamedOverview{ID: e.ID, Detail: e.PrivateIP.String(), User: e.Instance}
		}),
		Volumes: named(st, st.Volumes, func(v *volume) NamedOverview {
			return NamedOverview{ID: v.ID, Detail: fmt.Sprintf("%d GiB %s", v.SizeGiB, v.Type), User: v.Instance}
		}),
		Addresses: named(st, st.Addresses, func(a *address) NamedOverview {
			return NamedOverview{ID: a.ID, Detail: a.PublicIP.String(), User: t.addressItem(a).InstanceID}
		}),
		KeyPairs: named(st, st.KeyPairs, func(k *keyPair) NamedOverview { return NamedOverview{ID: k.ID, Detail: k.Name} }),
	}
	if netErr != nil {
		o.NetworkError = netErr.Error()
	}
	if o.Parameters == nil {
		o.Parameters = []string{}
	}
	for _, i := range sorted(st.Instances) {
		if i.State == stateTerminated {
			continue
		}
		item := t.instanceItem(i)
		o.Instances = append(o.Instances, InstanceOverview{
			i.ID, st.Tags[i.ID]["Name"], i.State.String(), i.Type, i.VPC, item.PrivateIP, item.PublicIP, i.LaunchTime, i.Impaired,
		})
	}
	o.Total = len(o.Instances) + len(o.VPCs) + len(o.Subnets) + len(o.Gateways) + len(o.RouteTables) + len(o.Groups) +
		len(o.Interfaces) + len(o.Volumes) + len(o.Addresses) + len(o.KeyPairs) + len(o.Parameters)
	return o
}

// Faults are the faults standing now.
func (c *Cloud) Faults() []fault.Fault { return c.faults.List() }

// faultRequest is the body of POST /_lab/faults: a standing fault, or one of
// the two things that happen at once.
type faultRequest struct {
	fault.Fault
	Instance string `json:"instance"` // kind "kill"
	Outcome  string `json:"outcome"`  // kind "kill": stopped (default), terminated or impaired
	Seed     uint64 `json:"seed"`     // kind "seed"
}

// newControl is the endpoint that makes the cloud misbehave and tells what it
// holds. It is not signed: whoever reaches the port owns the lab.
func (c *Cloud) newControl() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_lab/state", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, c.Overview()) })
	mux.HandleFunc("GET /_lab/calls", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, c.calls.snapshot()) })
	mux.HandleFunc("POST /_lab/reset-calls", func(w http.ResponseWriter, _ *http.Request) {
		c.calls.reset()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /_lab/faults", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, c.faults.List()) })
	mux.HandleFunc("POST /_lab/faults", c.addFault)
	mux.HandleFunc("DELETE /_lab/faults", func(w http.ResponseWriter, _ *http.Request) {
		c.faults.Clear()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("DELETE /_lab/faults/{id}", func(w http.ResponseWriter, r *http.Request) {
		if id, err := strconv.Atoi(r.PathValue("id")); err != nil || !c.faults.Remove(id) {
			refuse(w, http.StatusNotFound, fmt.Errorf("there is no fault %s", r.PathValue("id")))
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

func (c *Cloud) addFault(w http.ResponseWriter, r *http.Request) {
	var in faultRequest
	dec := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&in); err != nil {
		refuse(w, http.StatusBadRequest, fmt.Errorf("reading the fault: %w", err))
		return
	}
	switch in.Kind {
	case "kill":
		if in.Outcome != "" && in.Outcome != "stopped" && in.Outcome != "terminated" && in.Outcome != "impaired" {
			refuse(w, http.StatusBadRequest, fmt.Errorf("outcome %q is not stopped, terminated or impaired", in.Outcome))
			return
		}
		if err := c.PowerCut(r.Context(), in.Instance, in.Outcome); err != nil {
			refuse(w, http.StatusConflict, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	case "seed":
		c.faults.Seed(in.Seed)
		w.WriteHeader(http.StatusNoContent)
	default:
		f, err := c.faults.Add(in.Fault)
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		reply(w, http.StatusCreated, f)
	}
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client is gone if this fails
}

func refuse(w http.ResponseWriter, status int, err error) {
	reply(w, status, map[string]string{"error": err.Error()})
}
