package elbv2

import (
	"cmp"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/bucket"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// action is one action of the API.
type action struct {
	writes bool
	run    func(*tx, url.Values) (any, error)
}

func reads[I any](f func(*tx, *I) (any, error)) action { return action{run: decoded(f)} }

func writes[I any](f func(*tx, *I) (any, error)) action {
	return action{writes: true, run: decoded(f)}
}

// decoded converts a typed handler to one that takes form parameters.
func decoded[I any](f func(*tx, *I) (any, error)) func(*tx, url.Values) (any, error) {
	return func(t *tx, form url.Values) (any, error) {
		// An empty list is sent as a parameter without a value.
		form = maps.Clone(form)
		maps.DeleteFunc(form, func(k string, v []string) bool { return !strings.Contains(k, ".") && strings.Join(v, "") == "" })
		in := new(I)
		if err := wire.Decode(form, in); err != nil {
			return nil, invalid("%s", wire.AsError(err).Message)
		}
		return f(t, in)
	}
}

// none is the answer of actions that have nothing to say.
type none struct{}

var actions = func() map[string]action {
	all := map[string]action{}
	for _, some := range []map[string]action{loadBalancerActions, targetGroupActions, targetActions, listenerActions, attributeActions, tagActions} {
		maps.Copy(all, some)
	}
	return all
}()

// Actions returns the names of the actions that are served here, sorted.
func Actions() []string { return slices.Sorted(maps.Keys(actions)) }

// Serve runs one action with its form parameters and returns the answer. Refusals are *wire.Error.
func (s *Service) Serve(name string, form url.Values) (out any, err error) {
	a, ok := actions[name]
	if !ok {
		return nil, wire.Refuse("InvalidAction", "Could not find operation %s for version 2015-12-01", name)
	}
	if !a.writes {
		err = s.view(func(t *tx) (err error) {
			out, err = a.run(t, form)
			return err
		})
		return out, err
	}
	err = s.update(name, func(t *tx) (err error) {
		out, err = a.run(t, form)
		return err
	})
	return out, err
}

func invalid(format string, args ...any) error {
	return wire.Refuse("ValidationError", format, args...)
}

func badConfiguration(format string, args ...any) error {
	return wire.Refuse("InvalidConfigurationRequest", format, args...)
}

// page has the parameters of pages.
type page struct {
	Marker   string
	PageSize *int
}

// cut returns the page of a list that is ordered by id, and the marker of the next.
func cut[T any](p page, list []T, id func(T) string) ([]T, string, error) {
	if p.PageSize != nil && (*p.PageSize < 1 || *p.PageSize > 400) {
		return nil, "", invalid("1 validation error detected: Value '%d' at 'pageSize' failed to satisfy constraint: Member must be between 1 and 400", *p.PageSize)
	}
	if p.Marker != "" {
		list = slices.DeleteFunc(slices.Clone(list), func(v T) bool { return cmp.Compare(id(v), p.Marker) <= 0 })
	}
	if p.PageSize == nil || len(list) <= *p.PageSize {
		return list, "", nil
	}
	list = list[:*p.PageSize]
	return list, id(list[len(list)-1]), nil
}

// The buckets of an account in one region, one for each class of actions.
// https://docs.aws.amazon.com/elasticloadbalancing/latest/userguide/elb-api-throttling.html
var (
	nonMutating  = bucket.Size{Capacity: 40, Refill: 10}
	registration = bucket.Size{Capacity: 20, Refill: 4}
	mutating     = bucket.Size{Capacity: 20, Refill: 3}
)

// Admit takes the token for one call. It returns the throttling error if there is none.
func (s *Service) Admit(action string) error {
	if _, known := actions[action]; s.cfg.Unthrottled || !known {
		return nil
	}
	name, size := "change", mutating
	switch {
	case strings.HasPrefix(action, "Describe"):
		name, size = "read", nonMutating
	case action == "RegisterTargets" || action == "DeregisterTargets":
		name, size = "register", registration
	}
	if !s.buckets.Take(name, size, 1, s.cfg.Clock.Now()) {
		return wire.ELB.Throttled
	}
	return nil
}

// wholeNumber returns the number in a text, if it is within bounds.
func wholeNumber(text string, least, most int) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && least <= n && n <= most
}
