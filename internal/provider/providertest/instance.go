package providertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// Instance is one resource as Terraform keeps it.
type Instance struct {
	core     *Core
	TypeName string
	Schema   *tfprotov6.Schema
	State    tftypes.Value // null if there is no state
	Private  []byte
	Identity *tfprotov6.ResourceIdentityData // nil if there is none yet
}

// Change is a planned change.
type Change struct {
	Config, Planned tftypes.Value
	Private         []byte
	Identity        *tfprotov6.ResourceIdentityData
	Replace         []string
	Errors          []*tfprotov6.Diagnostic
	Warnings        []*tfprotov6.Diagnostic
}

// Failure returns "attribute: summary: detail" of every error.
func (c Change) Failure() string {
	var out []string
	for _, d := range c.Errors {
		out = append(out, strings.TrimPrefix(fmt.Sprint(d.Attribute), "AttributeName(")+": "+d.Summary+": "+d.Detail)
	}
	return strings.Join(out, "\n")
}

func (c *Change) Note(diags []*tfprotov6.Diagnostic) {
	for _, d := range diags {
		if d.Severity == tfprotov6.DiagnosticSeverityError {
			c.Errors = append(c.Errors, d)
		} else {
			c.Warnings = append(c.Warnings, d)
		}
	}
}

// Plan validates and plans a configuration; nil plans the deletion.
func (i *Instance) Plan(config Values) Change {
	i.core.T.Helper()
	ch := Change{Config: tftypes.NewValue(i.Schema.ValueType(), nil)}
	proposed := ch.Config
	if config != nil {
		ch.Config = i.core.Value(i.Schema, config)
		v, err := i.core.Server.ValidateResourceConfig(i.core.T.Context(), &tfprotov6.ValidateResourceConfigRequest{
			TypeName: i.TypeName, Config: i.core.Dynamic(i.Schema, ch.Config),
			ClientCapabilities: &tfprotov6.ValidateResourceConfigClientCapabilities{WriteOnlyAttributesAllowed: true},
		})
		if err != nil {
			i.core.T.Fatal(err)
		}
		if ch.Note(v.Diagnostics); len(ch.Errors) > 0 {
			return ch
		}
		proposed = i.propose(ch.Config)
	}
	resp, err := i.core.Server.PlanResourceChange(i.core.T.Context(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: i.TypeName, PriorState: i.core.Dynamic(i.Schema, i.State), PriorPrivate: i.Private,
		ProposedNewState: i.core.Dynamic(i.Schema, proposed), Config: i.core.Dynamic(i.Schema, ch.Config), PriorIdentity: i.Identity,
	})
	if err != nil {
		i.core.T.Fatal(err)
	}
	if ch.Note(resp.Diagnostics); len(ch.Errors) > 0 {
		return ch
	}
	for _, p := range resp.RequiresReplace {
		ch.Replace = append(ch.Replace, fmt.Sprint(p))
	}
	ch.Private, ch.Identity = resp.PlannedPrivate, resp.PlannedIdentity
	ch.Planned = i.unmarshal(resp.PlannedState)
	return ch
}

// propose computes the proposed state as Terraform does before a plan: computed attributes that are
// not configured keep their value.
func (i *Instance) propose(config tftypes.Value) tftypes.Value {
	var now, prior map[string]tftypes.Value
	_ = config.As(&now)
	if !i.State.IsNull() {
		_ = i.State.As(&prior)
	}
	out := maps.Clone(now)
	for _, a := range i.Schema.Block.Attributes {
		if a.Computed && out[a.Name].IsNull() && prior != nil {
			out[a.Name] = prior[a.Name]
		}
	}
	return tftypes.NewValue(i.Schema.ValueType(), out)
}

func (i *Instance) unmarshal(d *tfprotov6.DynamicValue) tftypes.Value {
	i.core.T.Helper()
	v, err := d.Unmarshal(i.Schema.ValueType())
	if err != nil {
		i.core.T.Fatal(err)
	}
	return v
}

// Empty reports whether the plan changes nothing.
func (i *Instance) Empty(c Change) bool { return c.Planned.Equal(i.State) }

// Apply applies a plan, checks that all planned values came true, and returns the errors.
func (i *Instance) Apply(c Change) []*tfprotov6.Diagnostic {
	i.core.T.Helper()
	return i.CarryOut(c).Errors
}

// Dismiss deletes the resource and returns the diagnostics.
func (i *Instance) Dismiss() Change {
	i.core.T.Helper()
	return i.CarryOut(i.Plan(nil))
}

func (i *Instance) CarryOut(c Change) (said Change) {
	i.core.T.Helper()
	i.core.Fatal(c.Errors)
	resp, err := i.core.Server.ApplyResourceChange(i.core.ctx, &tfprotov6.ApplyResourceChangeRequest{
		TypeName: i.TypeName, PriorState: i.core.Dynamic(i.Schema, i.State), Config: i.core.Dynamic(i.Schema, c.Config),
		PlannedState: i.core.Dynamic(i.Schema, c.Planned), PlannedPrivate: c.Private, PlannedIdentity: c.Identity,
	})
	if err != nil {
		i.core.T.Fatal(err)
	}
	i.State, i.Private, i.Identity = i.unmarshal(resp.NewState), resp.Private, resp.NewIdentity
	if said.Note(resp.Diagnostics); len(said.Errors) == 0 && !c.Planned.IsNull() {
		i.consistent(c.Planned)
	}
	return said
}

// consistent checks Terraform's rule that a known planned value must be the applied value.
func (i *Instance) consistent(planned tftypes.Value) {
	i.core.T.Helper()
	diffs, err := planned.Diff(i.State)
	if err != nil {
		i.core.T.Fatal(err)
	}
	for _, d := range diffs {
		if d.Value1 != nil && d.Value1.IsFullyKnown() {
			i.core.T.Errorf("inconsistent result after apply: %s was planned as %v and became %v", d.Path, Plain(*d.Value1), d.Value2)
		}
	}
	if !i.State.IsFullyKnown() {
		i.core.T.Errorf("unknown values after apply: %v", Plain(i.State))
	}
}

// Must applies a configuration.
func (i *Instance) Must(config Values) {
	i.core.T.Helper()
	i.core.Fatal(i.Apply(i.Plan(config)))
}

// Refresh reads the resource.
func (i *Instance) Refresh() { i.core.T.Helper(); i.Look() }

// Look is refresh that returns the warnings.
func (i *Instance) Look() Change {
	i.core.T.Helper()
	seen := i.TryLook()
	i.core.Fatal(seen.Errors)
	return seen
}

// TryLook is refresh that returns warnings and errors. With an error the state stays.
func (i *Instance) TryLook() (seen Change) {
	i.core.T.Helper()
	resp, err := i.core.Server.ReadResource(i.core.T.Context(), &tfprotov6.ReadResourceRequest{
		TypeName: i.TypeName, CurrentState: i.core.Dynamic(i.Schema, i.State), Private: i.Private, CurrentIdentity: i.Identity,
	})
	if err != nil {
		i.core.T.Fatal(err)
	}
	if seen.Note(resp.Diagnostics); len(seen.Errors) == 0 {
		i.State, i.Private, i.Identity = i.unmarshal(resp.NewState), resp.Private, resp.NewIdentity
	}
	return seen
}

// Converged refreshes, and fails unless a plan of the same configuration is empty.
func (i *Instance) Converged(config Values) {
	i.core.T.Helper()
	i.Refresh()
	if ch := i.Plan(config); !i.Empty(ch) {
		i.core.T.Errorf("the plan is not empty: %s\n%s", ch.Failure(), i.Differences(ch))
	}
}

// Differences returns what a plan changes, one line for each attribute.
func (i *Instance) Differences(c Change) string {
	diffs, _ := i.State.Diff(c.Planned)
	var out []string
	for _, d := range diffs {
		before, after := any("absent"), any("absent")
		if d.Value1 != nil {
			before = Plain(*d.Value1)
		}
		if d.Value2 != nil {
			after = Plain(*d.Value2)
		}
		out = append(out, fmt.Sprintf("%s: %v -> %v", d.Path, before, after))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// Imports imports the resource by its id.
func (i *Instance) Imports(id string) { i.core.T.Helper(); i.core.Fatal(i.tryImport(id, nil).Errors) }

// TryImport imports the resource and returns the errors.
func (i *Instance) TryImport(id string) string {
	i.core.T.Helper()
	return i.tryImport(id, nil).Failure()
}

// ImportsAs imports the resource by its identity and returns the errors.
func (i *Instance) ImportsAs(identity Values) string {
	i.core.T.Helper()
	d, err := tfprotov6.NewDynamicValue(i.identityType(), Build(i.identityType(), identity))
	if err != nil {
		i.core.T.Fatal(err)
	}
	return i.tryImport("", &tfprotov6.ResourceIdentityData{IdentityData: &d}).Failure()
}

func (i *Instance) tryImport(id string, identity *tfprotov6.ResourceIdentityData) (said Change) {
	i.core.T.Helper()
	resp, err := i.core.Server.ImportResourceState(i.core.T.Context(), &tfprotov6.ImportResourceStateRequest{TypeName: i.TypeName, ID: id, Identity: identity})
	if err != nil {
		i.core.T.Fatal(err)
	}
	if said.Note(resp.Diagnostics); len(said.Errors) == 0 {
		got := resp.ImportedResources[0]
		i.State, i.Private, i.Identity = i.unmarshal(got.State), got.Private, got.Identity
	}
	return said
}

// Identified returns the identity that Terraform keeps, or nil.
func (i *Instance) Identified() Values {
	i.core.T.Helper()
	if i.Identity == nil {
		return nil
	}
	v, err := i.Identity.IdentityData.Unmarshal(i.identityType())
	if err != nil {
		i.core.T.Fatal(err)
	}
	out, _ := Plain(v).(Values)
	return out
}

func (i *Instance) identityType() tftypes.Type {
	i.core.T.Helper()
	s := i.core.Identities(i.TypeName)
	if s == nil {
		i.core.T.Fatalf("%s has no identity", i.TypeName)
	}
	return s.ValueType()
}

// Get returns an attribute of the state.
func (i *Instance) Get(name string) any {
	i.core.T.Helper()
	m, _ := Plain(i.State).(Values)
	return m[name]
}

// Leaks fails the test when the state or private state holds a private key.
func (i *Instance) Leaks() {
	i.core.T.Helper()
	text, err := json.Marshal(Plain(i.State))
	if err != nil {
		i.core.T.Fatal(err)
	}
	if bytes.Contains(text, []byte("PRIVATE KEY")) || bytes.Contains(i.Private, []byte("PRIVATE KEY")) {
		i.core.T.Errorf("%s keeps a private key in its state", i.TypeName)
	}
}

// ByRequest plans as Terraform does for -replace: an ordinary plan, then the creation of a new
// object with the private state that was planned for the old one. Of the second plan Terraform
// shows errors only.
func (i *Instance) ByRequest(config Values) Change {
	i.core.T.Helper()
	first := i.Plan(config)
	if len(first.Errors) > 0 {
		return first
	}
	null := tftypes.NewValue(i.Schema.ValueType(), nil)
	fresh := &Instance{core: i.core, TypeName: i.TypeName, Schema: i.Schema, State: null, Private: first.Private}
	second := fresh.Plan(config)
	if len(second.Errors) == 0 {
		second.Warnings = first.Warnings
	}
	return second
}

// Tainted deletes the object as Terraform does when it is tainted: the plan was that of a new
// object, without the private state of the old one.
func (i *Instance) Tainted(config Values) (said Change) {
	i.core.T.Helper()
	null := tftypes.NewValue(i.Schema.ValueType(), nil)
	fresh := &Instance{core: i.core, TypeName: i.TypeName, Schema: i.Schema, State: null}
	planned := fresh.Plan(config)
	i.core.Fatal(planned.Errors)
	resp, err := i.core.Server.ApplyResourceChange(i.core.T.Context(), &tfprotov6.ApplyResourceChangeRequest{
		TypeName: i.TypeName, PriorState: i.core.Dynamic(i.Schema, i.State), Config: i.core.Dynamic(i.Schema, null),
		PlannedState: i.core.Dynamic(i.Schema, null), PlannedPrivate: planned.Private,
	})
	if err != nil {
		i.core.T.Fatal(err)
	}
	said.Note(resp.Diagnostics)
	i.State = i.unmarshal(resp.NewState)
	return said
}

func Warnings(c Change) string {
	var out []string
	for _, w := range c.Warnings {
		out = append(out, w.Summary+": "+w.Detail)
	}
	return strings.Join(out, "\n")
}

// Call calls a function of the provider, as Terraform does. Its arguments and result are as in JSON.
func (c *Core) Call(name string, args ...any) (any, *tfprotov6.FunctionError) {
	c.T.Helper()
	f := c.Schemas.Functions[name]
	if f == nil || len(f.Parameters) != len(args) {
		c.T.Fatalf("there is no function %s with %d parameters", name, len(args))
	}
	in := make([]*tfprotov6.DynamicValue, len(args))
	for i, p := range f.Parameters {
		v, err := tfprotov6.NewDynamicValue(p.Type, Build(p.Type, args[i]))
		if err != nil {
			c.T.Fatal(err)
		}
		in[i] = &v
	}
	resp, err := c.Server.CallFunction(c.T.Context(), &tfprotov6.CallFunctionRequest{Name: name, Arguments: in})
	if err != nil {
		c.T.Fatal(err)
	}
	if resp.Error != nil {
		return nil, resp.Error
	}
	v, err := resp.Result.Unmarshal(f.Return.Type)
	if err != nil {
		c.T.Fatal(err)
	}
	return Plain(v), nil
}

// Taint deletes the object as Terraform does before it replaces a tainted one.
func (i *Instance) Taint() {
	i.core.T.Helper()
	i.Private = nil
	if said := i.Dismiss(); len(said.Errors)+len(said.Warnings) > 0 || !i.State.IsNull() {
		i.core.T.Errorf("deleting the tainted %s: %v %v", i.TypeName, said.Errors, said.Warnings)
	}
}

// RefreshAll refreshes as many resources at a time as Terraform does.
func RefreshAll(resources []*Instance) {
	slots := make(chan struct{}, 10)
	var all sync.WaitGroup
	for _, r := range resources {
		slots <- struct{}{}
		all.Go(func() { r.Refresh(); <-slots })
	}
	all.Wait()
}
