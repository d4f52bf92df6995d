package cloud

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
)

// ControlPrefix begins the paths of the control endpoint.
const ControlPrefix = "/_lab/"

// Overview lists every resource, for people and for tests that nothing is left.
type Overview struct {
	ec2.Overview
	LoadBalancers []ec2.NamedOverview `json:"load_balancers"`
	TargetGroups  []ec2.NamedOverview `json:"target_groups"`
	Parameters    []string            `json:"parameters"`
	Total         int                 `json:"total"` // of all of the above
	// Buckets are S3's. They are not counted: what is in them is to outlive what it was made of.
	Buckets []string `json:"buckets"`
}

// Overview returns every resource.
func (a *Account) Overview() Overview {
	o := Overview{Overview: a.compute.Overview(), Parameters: a.params.Names(), Buckets: []string{}}
	o.LoadBalancers, o.TargetGroups = a.balancers()
	if a.cfg.Objects != nil {
		o.Buckets = append(o.Buckets, a.cfg.Objects.Buckets()...)
	}
	if o.Parameters == nil {
		o.Parameters = []string{}
	}
	o.Total = o.Count() + len(o.LoadBalancers) + len(o.TargetGroups) + len(o.Parameters)
	return o
}

// Faults returns the faults in force.
func (a *Account) Faults() []fault.Fault { return a.faults.List() }

// faultRequest is the body of POST /_lab/faults: a fault, or one of one of the kinds that take effect
// once.
type faultRequest struct {
	fault.Fault
	Instance string `json:"instance"` // kinds "kill", "interrupt", "rebalance" and "schedule"
	Outcome  string `json:"outcome"`  // kind "kill": stopped (default), terminated or impaired
	Seed     uint64 `json:"seed"`     // kind "seed"
}

// newControl returns the control endpoint. Its requests are not signed, and whoever reaches it owns
// the lab.
func (a *Account) newControl() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_lab/state", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, a.Overview()) })
	mux.HandleFunc("GET /_lab/calls", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, a.calls.snapshot()) })
	mux.HandleFunc("POST /_lab/reset-calls", func(w http.ResponseWriter, _ *http.Request) {
		a.calls.reset()
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /_lab/iam", func(w http.ResponseWriter, _ *http.Request) {
		users, roles := a.identities.List()
		reply(w, http.StatusOK, map[string]any{"users": users, "roles": roles, "instance_profiles": a.identities.Profiles(), "policies": a.identities.ManagedPolicies(), "oidc_providers": a.identities.Issuers()})
	})
	mux.HandleFunc("PUT /_lab/iam/users/{name}", putIdentity(func(name string, in Identity) (iam.User, error) {
		if in.Trust != "" {
			return iam.User{}, errors.New("a user has no trust policy")
		}
		return a.identities.PutUser(name, in.Entity)
	}))
	mux.HandleFunc("PUT /_lab/iam/roles/{name}", putIdentity(func(name string, in Identity) (iam.Role, error) {
		return a.identities.PutRole(name, in.Entity, in.Trust)
	}))
	mux.HandleFunc("PUT /_lab/iam/instance-profiles/{name}", putIdentity(func(name string, in InstanceProfile) (iam.Profile, error) {
		return a.PutInstanceProfile(name, in.Path, in.Role)
	}))
	mux.HandleFunc("PUT /_lab/iam/policies/{name}", putIdentity(func(name string, in ManagedPolicy) (iam.Managed, error) {
		return a.identities.PutPolicy(name, in.Path, in.Document)
	}))
	mux.HandleFunc("PUT /_lab/iam/service-control-policies", putIdentity(func(_ string, in iam.Entity) ([]string, error) {
		return in.Policies, a.identities.PutControls(in.Policies)
	}))
	mux.HandleFunc("PUT /_lab/iam/oidc-providers", putIdentity(func(_ string, in iam.Issuer) (iam.Issuer, error) {
		return a.identities.PutIssuer(in)
	}))
	mux.HandleFunc("DELETE /_lab/iam/oidc-providers/{name...}", deleteIdentity(a.identities.DeleteIssuer))
	mux.HandleFunc("DELETE /_lab/iam/policies/{name...}", deleteIdentity(a.identities.DeletePolicy))
	mux.HandleFunc("DELETE /_lab/iam/instance-profiles/{name}", deleteIdentity(a.identities.DeleteProfile))
	mux.HandleFunc("DELETE /_lab/iam/users/{name}", deleteIdentity(a.identities.DeleteUser))
	mux.HandleFunc("DELETE /_lab/iam/roles/{name}", deleteIdentity(a.identities.DeleteRole))
	mux.HandleFunc("GET /_lab/faults", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, a.faults.List()) })
	mux.HandleFunc("POST /_lab/faults", a.addFault)
	mux.HandleFunc("DELETE /_lab/faults", func(w http.ResponseWriter, _ *http.Request) {
		a.changeFaults(a.faults.Clear)
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("DELETE /_lab/faults/{id}", func(w http.ResponseWriter, r *http.Request) {
		id, err := strconv.Atoi(r.PathValue("id"))
		known := false
		a.changeFaults(func() { known = err == nil && a.faults.Remove(id) })
		if !known {
			refuse(w, http.StatusNotFound, fmt.Errorf("there is no fault %s", r.PathValue("id")))
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return mux
}

// Identity is what the control endpoint is told about a user or a role.
type Identity struct {
	iam.Entity
	Trust string `json:"trust,omitempty"` // of a role; empty trusts the account
}

// InstanceProfile is what the control endpoint is told about an instance profile.
type InstanceProfile struct {
	Path string `json:"path,omitempty"`
	Role string `json:"role"` // name
}

// ManagedPolicy is what the control endpoint is told about a managed policy.
type ManagedPolicy struct {
	Path     string `json:"path,omitempty"`
	Document string `json:"document"`
}

// deleteIdentity deletes a user, a role, an instance profile or, by its ARN, a managed policy or an OpenID Connect provider.
func deleteIdentity(remove func(name string) (bool, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch ok, err := remove(r.PathValue("name")); {
		case err != nil:
			refuse(w, http.StatusInternalServerError, err)
		case !ok:
			refuse(w, http.StatusNotFound, fmt.Errorf("there is no %q", r.PathValue("name")))
		default:
			w.WriteHeader(http.StatusNoContent)
		}
	}
}

// putIdentity makes what the request's body describes.
func putIdentity[I, T any](put func(name string, in I) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in I
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&in); err != nil {
			refuse(w, http.StatusBadRequest, fmt.Errorf("reading the request: %w", err))
			return
		}
		made, err := put(r.PathValue("name"), in)
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		reply(w, http.StatusOK, made)
	}
}

func (a *Account) addFault(w http.ResponseWriter, r *http.Request) {
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
		if err := a.compute.PowerCut(r.Context(), in.Instance, in.Outcome); err != nil {
			refuse(w, http.StatusConflict, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	case "interrupt", "rebalance", "schedule":
		if in.Seconds < 0 {
			refuse(w, http.StatusBadRequest, errors.New("seconds must not be negative"))
			return
		}
		if err := a.announce(in); err != nil {
			refuse(w, http.StatusConflict, err)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	case "idle-flows":
		if in.Seconds <= 0 {
			refuse(w, http.StatusBadRequest, errors.New("seconds must be positive"))
			return
		}
		n, err := a.cfg.Network.ForgetIdle(r.Context(), time.Duration(in.Seconds*float64(time.Second)))
		if err != nil {
			refuse(w, http.StatusConflict, err)
			return
		}
		reply(w, http.StatusOK, map[string]int{"forgotten": n})
	case "seed":
		a.faults.Seed(in.Seed)
		w.WriteHeader(http.StatusNoContent)
	default:
		if zones := a.compute.Zones(); in.Kind == fault.Zone && !slices.Contains(zones, in.Zone) {
			refuse(w, http.StatusBadRequest, fmt.Errorf("there is no zone %q: the lab has %s", in.Zone, strings.Join(zones, ", ")))
			return
		}
		var f fault.Fault
		var err error
		a.changeFaults(func() { f, err = a.faults.Add(in.Fault, a.cfg.Clock.Now()) })
		if err != nil {
			refuse(w, http.StatusBadRequest, err)
			return
		}
		reply(w, http.StatusCreated, f)
	}
}

// announce lets EC2 announce something to an instance.
func (a *Account) announce(in faultRequest) error {
	after := time.Duration(in.Seconds * float64(time.Second))
	switch in.Kind {
	case "interrupt":
		return a.compute.Interrupt(in.Instance, after)
	case "rebalance":
		return a.compute.Recommend(in.Instance)
	default:
		return a.compute.Schedule(in.Instance, in.Code, after)
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

// changeFaults changes the faults, and the network if other zones are cut off afterwards.
func (a *Account) changeFaults(change func()) {
	before := a.cutZones()
	change()
	if !slices.Equal(before, a.cutZones()) {
		a.compute.NetworkChanged()
	}
}

func (a *Account) cutZones() []string {
	return slices.DeleteFunc(a.compute.Zones(), func(zone string) bool {
		_, cut := a.faults.ZoneCut(zone)
		return !cut
	})
}
