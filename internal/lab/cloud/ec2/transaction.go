package ec2

import (
	"maps"
	"net/url"
	"slices"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// tx is an action that reads or changes the state, with its lock held.
type tx struct {
	c       *Compute
	st      *state
	now     time.Time
	action  string
	form    url.Values
	may     allows
	created []string
	effects []func() // run after the commit
}

// afterCommit schedules f to run after the commit.
func (t *tx) afterCommit(f func()) { t.effects = append(t.effects, f) }

// action is one action of the API.
type action struct {
	writes bool
	run    func(*tx, url.Values) (any, error)
}

// request is embedded by every action's input.
type request struct{ DryRun bool }

func (r request) dryRun() bool { return r.DryRun }

type dryRunner interface{ dryRun() bool }

func reads[I any](f func(*tx, *I) (any, error)) action { return action{run: decoded(f)} }

func writes[I any](f func(*tx, *I) (any, error)) action {
	return action{writes: true, run: decoded(f)}
}

// decoded converts a typed handler to one that takes form parameters. A dry run does all the work
// and is then refused, so that it finds every error of a real run, and its transaction is dropped.
func decoded[I any](f func(*tx, *I) (any, error)) func(*tx, url.Values) (any, error) {
	return func(t *tx, form url.Values) (any, error) {
		in := new(I)
		if err := wire.Decode(form, in); err != nil {
			return nil, err
		}
		out, err := f(t, in)
		if err != nil {
			return nil, err
		}
		if d, ok := any(in).(dryRunner); ok && d.dryRun() {
			return nil, wire.RefuseWith(412, "DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
		}
		return out, nil
	}
}

// done is the body of a response that has only <return>true</return>.
type done struct {
	Return bool `xml:"return"`
}

// actions is the EC2 API.
var actions = func() map[string]action {
	all := map[string]action{}
	for _, some := range []map[string]action{
		vpcActions, subnetActions, gatewayActions, natGatewayActions, connectEndpointActions, routeTableActions, routeActions, groupActions, ruleActions,
		instanceActions, creditActions, placementGroupActions, launchTemplateActions, instanceTypeActions, imageActions, imageCreateActions, snapshotActions, interfaceActions, volumeActions,
		addressActions, keyPairActions, tagActions, regionActions, dhcpOptionsActions,
		networkACLActions, profileActions, settingsActions, absentActions,
	} {
		maps.Copy(all, some)
	}
	return all
}()

// Serve runs one action with its form parameters and returns the answer. Reads use the live state,
// writes a transaction. Refusals are *wire.Error. Writes ask may, while the Compute is locked.
func (c *Compute) Serve(name string, form url.Values, may allows) (any, error) {
	a, ok := actions[name]
	if !ok {
		return nil, wire.Refuse("InvalidAction", "The action %s is not valid for this web service.", name)
	}
	if !a.writes {
		c.mu.Lock()
		defer c.mu.Unlock()
		return a.run(&tx{c: c, st: c.st, now: c.cfg.Clock.Now(), action: name, form: form}, form)
	}
	var out any
	err := c.update(name, form, func(t *tx) (err error) {
		t.may = may
		out, err = a.run(t, form)
		return err
	})
	if err != nil {
		return nil, err
	}
	c.syncNetwork(c.ctx)
	return out, nil
}

// update runs f on a copy of the state. If f succeeds, the copy is saved and replaces the state,
// and what f has scheduled is run.
func (c *Compute) update(name string, form url.Values, f func(*tx) error) error {
	t := &tx{c: c, now: c.cfg.Clock.Now(), action: name, form: form}
	if err := c.commit(t, f); err != nil {
		return err
	}
	for _, effect := range t.effects {
		effect()
	}
	return nil
}

func (c *Compute) commit(t *tx, f func(*tx) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.st = c.st.copied()
	t.dropExpired()
	if err := f(t); err != nil {
		return err
	}
	if err := writeStateFile(c.cfg.StateFile, t.st); err != nil {
		return err
	}
	before := c.st
	c.st = t.st
	c.faults.Created(t.action, append(t.created, c.keepFormer(t, before)...), t.now)
	return nil
}

// tokenRemembered is how long a client token is remembered. EC2 does not say how long it does: it
// is longer than a terminated instance is shown.
const tokenRemembered = 24 * time.Hour

// dropExpired drops instances, NAT gateways and endpoints once EC2 no longer shows them, and what was
// remembered for long enough.
func (t *tx) dropExpired() {
	for id, i := range t.st.Instances {
		if i.State == stateTerminated && t.now.Sub(i.TerminatedAt) > TerminatedVisible {
			delete(t.st.Instances, id)
			delete(t.st.Tags, id)
		}
	}
	for id, g := range t.st.NATGateways {
		if g.ended() && t.now.Sub(g.Ended) > natVisible {
			t.drop(id)
			delete(t.st.NATGateways, id)
		}
	}
	for id, e := range t.st.ConnectEndpoints {
		if e.State == connectDeleted && t.now.Sub(e.Ended) > connectVisible {
			t.drop(id)
			delete(t.st.ConnectEndpoints, id)
		}
	}
	for id, i := range t.st.Images {
		if !i.Deregistered.IsZero() && t.now.Sub(i.Deregistered) > deregisteredKnown {
			delete(t.st.Images, id)
		}
	}
	maps.DeleteFunc(t.st.Tokens, func(_ string, c clientToken) bool { return t.now.Sub(c.Used) > tokenRemembered })
	maps.DeleteFunc(t.st.Profiles, func(_ string, a *profileAssociation) bool { return a.state(t.now) == "" })
	maps.DeleteFunc(t.st.Held, func(_ string, since time.Time) bool { return t.now.Sub(since) >= heldFor })
}

// find returns the resource with the id that a request gives.
func find[T any](t *tx, k kind, m map[string]*T, parameter, id string) (*T, error) {
	if err := k.check(parameter, id); err != nil {
		return nil, err
	}
	v, ok := m[id]
	if !ok || t.c.faults.Hidden(id, t.now) {
		return nil, k.notFoundError(id)
	}
	return v, nil
}

// findOr returns the resource that a request gives, and the default if it gives none. EC2 refuses an empty id: it stands
// for no default.
func findOr[T any](t *tx, k kind, m map[string]*T, parameter string, id *string, byDefault func() (*T, error)) (*T, error) {
	switch {
	case id == nil:
		return byDefault()
	case *id == "":
		return nil, invalidValue("Value () for parameter %s is invalid. The value cannot be empty", parameter)
	}
	return find(t, k, m, parameter, *id)
}

// resultOf returns the ids that an earlier request with the same token made, or none if the request
// is new, and the key for saveResult.
func (t *tx) resultOf(token string) (ids []string, key string, err error) {
	if token == "" {
		return nil, "", nil
	}
	if len(token) > 64 {
		return nil, "", invalidValue("Invalid value '%s' for parameter clientToken. The client token must be no longer than 64 ASCII characters.", token)
	}
	key = t.action + "/" + token
	seen, ok := t.st.Tokens[key]
	if !ok {
		return nil, key, nil
	}
	if seen.Fingerprint != fingerprint(t.form) {
		return nil, key, wire.Refuse("IdempotentParameterMismatch", "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).")
	}
	return seen.IDs, key, nil
}

func (t *tx) saveResult(key string, ids ...string) {
	if key != "" {
		t.st.Tokens[key] = clientToken{Fingerprint: fingerprint(t.form), IDs: ids, Used: t.now}
	}
}

// Actions returns the names of EC2's actions that are served here, sorted.
func Actions() []string { return slices.Sorted(maps.Keys(actions)) }
