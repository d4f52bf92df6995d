package provider

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// core is Terraform's side of the plugin protocol, as far as one resource at a time needs it.
type core struct {
	t       *testing.T
	ctx     context.Context // of an apply; it ends when the process is killed
	server  tfprotov6.ProviderServer
	schemas *tfprotov6.GetProviderSchemaResponse
}

// unknown stands for a value that is unknown in a plan.
const unknown = "<unknown>"

// values is a configuration or state, with the types of JSON.
type values = map[string]any

func newCore(t *testing.T, p *Provider, config values) *core {
	t.Helper()
	c := open(t, p)
	c.fatal(c.configure(config))
	return c
}

// schemas are the same for every provider. Terraform also asks one of them only.
var schemas = sync.OnceValues(func() (*tfprotov6.GetProviderSchemaResponse, error) {
	return providerserver.NewProtocol6(New("test"))().GetProviderSchema(context.Background(), &tfprotov6.GetProviderSchemaRequest{})
})

// open serves a provider that is not configured yet.
func open(t *testing.T, p *Provider) *core {
	t.Helper()
	c := &core{t: t, ctx: t.Context(), server: providerserver.NewProtocol6(p)()}
	var err error
	if c.schemas, err = schemas(); err != nil {
		t.Fatal(err)
	}
	c.fatal(c.schemas.Diagnostics)
	t.Cleanup(func() { _ = p.Close() })
	return c
}

func (c *core) configure(config values) []*tfprotov6.Diagnostic {
	c.t.Helper()
	valid, err := c.server.ValidateProviderConfig(c.t.Context(), &tfprotov6.ValidateProviderConfigRequest{
		Config: c.dynamic(c.schemas.Provider, c.value(c.schemas.Provider, config)),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	if len(valid.Diagnostics) > 0 {
		return valid.Diagnostics
	}
	resp, err := c.server.ConfigureProvider(c.t.Context(), &tfprotov6.ConfigureProviderRequest{
		Config: c.dynamic(c.schemas.Provider, c.value(c.schemas.Provider, config)),
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return resp.Diagnostics
}

// configure configures a provider and returns its errors.
func configure(t *testing.T, p *Provider, config values) string {
	t.Helper()
	var ch change
	ch.note(open(t, p).configure(config))
	return ch.failure()
}

func (c *core) fatal(diags []*tfprotov6.Diagnostic) {
	c.t.Helper()
	for _, d := range diags {
		if d.Severity == tfprotov6.DiagnosticSeverityError {
			c.t.Fatalf("%s: %s: %s", d.Attribute, d.Summary, d.Detail)
		}
	}
}

func (c *core) value(s *tfprotov6.Schema, v values) tftypes.Value {
	c.t.Helper()
	return build(s.ValueType(), v)
}

func (c *core) dynamic(s *tfprotov6.Schema, v tftypes.Value) *tfprotov6.DynamicValue {
	c.t.Helper()
	d, err := tfprotov6.NewDynamicValue(s.ValueType(), v)
	if err != nil {
		c.t.Fatal(err)
	}
	return &d
}

// instance is one resource as Terraform keeps it.
type instance struct {
	core     *core
	typeName string
	schema   *tfprotov6.Schema
	state    tftypes.Value // null if there is no state
	private  []byte
}

func (c *core) instance(typeName string) *instance {
	c.t.Helper()
	s := c.schemas.ResourceSchemas[typeName]
	if s == nil {
		c.t.Fatalf("no resource %s", typeName)
	}
	return &instance{core: c, typeName: typeName, schema: s, state: tftypes.NewValue(s.ValueType(), nil)}
}

// change is a planned change.
type change struct {
	config, planned tftypes.Value
	private         []byte
	replace         []string
	errors          []*tfprotov6.Diagnostic
	warnings        []*tfprotov6.Diagnostic
}

// failure returns "attribute: summary: detail" of every error.
func (c change) failure() string {
	var out []string
	for _, d := range c.errors {
		out = append(out, strings.TrimPrefix(fmt.Sprint(d.Attribute), "AttributeName(")+": "+d.Summary+": "+d.Detail)
	}
	return strings.Join(out, "\n")
}

func (c *change) note(diags []*tfprotov6.Diagnostic) {
	for _, d := range diags {
		if d.Severity == tfprotov6.DiagnosticSeverityError {
			c.errors = append(c.errors, d)
		} else {
			c.warnings = append(c.warnings, d)
		}
	}
}

// plan validates and plans a configuration; nil plans the deletion.
func (i *instance) plan(config values) change {
	i.core.t.Helper()
	ch := change{config: tftypes.NewValue(i.schema.ValueType(), nil)}
	proposed := ch.config
	if config != nil {
		ch.config = i.core.value(i.schema, config)
		v, err := i.core.server.ValidateResourceConfig(i.core.t.Context(), &tfprotov6.ValidateResourceConfigRequest{
			TypeName: i.typeName, Config: i.core.dynamic(i.schema, ch.config),
			ClientCapabilities: &tfprotov6.ValidateResourceConfigClientCapabilities{WriteOnlyAttributesAllowed: true},
		})
		if err != nil {
			i.core.t.Fatal(err)
		}
		if ch.note(v.Diagnostics); len(ch.errors) > 0 {
			return ch
		}
		proposed = i.propose(ch.config)
	}
	resp, err := i.core.server.PlanResourceChange(i.core.t.Context(), &tfprotov6.PlanResourceChangeRequest{
		TypeName: i.typeName, PriorState: i.core.dynamic(i.schema, i.state), PriorPrivate: i.private,
		ProposedNewState: i.core.dynamic(i.schema, proposed), Config: i.core.dynamic(i.schema, ch.config),
	})
	if err != nil {
		i.core.t.Fatal(err)
	}
	if ch.note(resp.Diagnostics); len(ch.errors) > 0 {
		return ch
	}
	for _, p := range resp.RequiresReplace {
		ch.replace = append(ch.replace, fmt.Sprint(p))
	}
	ch.private = resp.PlannedPrivate
	ch.planned = i.unmarshal(resp.PlannedState)
	return ch
}

// propose computes the proposed state as Terraform does before a plan: computed attributes that are
// not configured keep their value.
func (i *instance) propose(config tftypes.Value) tftypes.Value {
	var now, prior map[string]tftypes.Value
	_ = config.As(&now)
	if !i.state.IsNull() {
		_ = i.state.As(&prior)
	}
	out := maps.Clone(now)
	for _, a := range i.schema.Block.Attributes {
		if a.Computed && out[a.Name].IsNull() && prior != nil {
			out[a.Name] = prior[a.Name]
		}
	}
	return tftypes.NewValue(i.schema.ValueType(), out)
}

func (i *instance) unmarshal(d *tfprotov6.DynamicValue) tftypes.Value {
	i.core.t.Helper()
	v, err := d.Unmarshal(i.schema.ValueType())
	if err != nil {
		i.core.t.Fatal(err)
	}
	return v
}

// empty reports whether the plan changes nothing.
func (i *instance) empty(c change) bool { return c.planned.Equal(i.state) }

// apply applies a plan, checks that all planned values came true, and returns the errors.
func (i *instance) apply(c change) []*tfprotov6.Diagnostic {
	i.core.t.Helper()
	return i.carryOut(c).errors
}

// dismiss deletes the resource and returns the diagnostics.
func (i *instance) dismiss() change {
	i.core.t.Helper()
	return i.carryOut(i.plan(nil))
}

func (i *instance) carryOut(c change) (said change) {
	i.core.t.Helper()
	i.core.fatal(c.errors)
	resp, err := i.core.server.ApplyResourceChange(i.core.ctx, &tfprotov6.ApplyResourceChangeRequest{
		TypeName: i.typeName, PriorState: i.core.dynamic(i.schema, i.state), Config: i.core.dynamic(i.schema, c.config),
		PlannedState: i.core.dynamic(i.schema, c.planned), PlannedPrivate: c.private,
	})
	if err != nil {
		i.core.t.Fatal(err)
	}
	i.state, i.private = i.unmarshal(resp.NewState), resp.Private
	if said.note(resp.Diagnostics); len(said.errors) == 0 && !c.planned.IsNull() {
		i.consistent(c.planned)
	}
	return said
}

// consistent checks Terraform's rule that a known planned value must be the applied value.
func (i *instance) consistent(planned tftypes.Value) {
	i.core.t.Helper()
	diffs, err := planned.Diff(i.state)
	if err != nil {
		i.core.t.Fatal(err)
	}
	for _, d := range diffs {
		if d.Value1 != nil && d.Value1.IsFullyKnown() {
			i.core.t.Errorf("inconsistent result after apply: %s was planned as %v and became %v", d.Path, plain(*d.Value1), d.Value2)
		}
	}
	if !i.state.IsFullyKnown() {
		i.core.t.Errorf("unknown values after apply: %v", plain(i.state))
	}
}

// must applies a configuration.
func (i *instance) must(config values) {
	i.core.t.Helper()
	i.core.fatal(i.apply(i.plan(config)))
}

// refresh reads the resource.
func (i *instance) refresh() { i.core.t.Helper(); i.look() }

// look is refresh that returns the warnings.
func (i *instance) look() change {
	i.core.t.Helper()
	seen := i.tryLook()
	i.core.fatal(seen.errors)
	return seen
}

// tryLook is refresh that returns warnings and errors. With an error the state stays.
func (i *instance) tryLook() (seen change) {
	i.core.t.Helper()
	resp, err := i.core.server.ReadResource(i.core.t.Context(), &tfprotov6.ReadResourceRequest{
		TypeName: i.typeName, CurrentState: i.core.dynamic(i.schema, i.state), Private: i.private,
	})
	if err != nil {
		i.core.t.Fatal(err)
	}
	if seen.note(resp.Diagnostics); len(seen.errors) == 0 {
		i.state, i.private = i.unmarshal(resp.NewState), resp.Private
	}
	return seen
}

// settled refreshes, and fails unless a plan of the same configuration is empty.
func (i *instance) settled(config values) {
	i.core.t.Helper()
	i.refresh()
	if ch := i.plan(config); !i.empty(ch) {
		i.core.t.Errorf("the plan is not empty: %s\n%s", ch.failure(), i.differences(ch))
	}
}

// differences returns what a plan changes, one line for each attribute.
func (i *instance) differences(c change) string {
	diffs, _ := i.state.Diff(c.planned)
	var out []string
	for _, d := range diffs {
		before, after := any("absent"), any("absent")
		if d.Value1 != nil {
			before = plain(*d.Value1)
		}
		if d.Value2 != nil {
			after = plain(*d.Value2)
		}
		out = append(out, fmt.Sprintf("%s: %v -> %v", d.Path, before, after))
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// imports imports the resource by its id.
func (i *instance) imports(id string) {
	i.core.t.Helper()
	resp, err := i.core.server.ImportResourceState(i.core.t.Context(), &tfprotov6.ImportResourceStateRequest{TypeName: i.typeName, ID: id})
	if err != nil {
		i.core.t.Fatal(err)
	}
	i.core.fatal(resp.Diagnostics)
	i.state, i.private = i.unmarshal(resp.ImportedResources[0].State), resp.ImportedResources[0].Private
}

// tryImport imports the resource and returns the errors.
func (i *instance) tryImport(id string) string {
	i.core.t.Helper()
	resp, err := i.core.server.ImportResourceState(i.core.t.Context(), &tfprotov6.ImportResourceStateRequest{TypeName: i.typeName, ID: id})
	if err != nil {
		i.core.t.Fatal(err)
	}
	var said change
	said.note(resp.Diagnostics)
	return said.failure()
}

// get returns an attribute of the state.
func (i *instance) get(name string) any {
	i.core.t.Helper()
	m, _ := plain(i.state).(values)
	return m[name]
}

// leaks fails the test when the state or private state holds a private key.
func (i *instance) leaks() {
	i.core.t.Helper()
	text, err := json.Marshal(plain(i.state))
	if err != nil {
		i.core.t.Fatal(err)
	}
	if bytes.Contains(text, []byte("PRIVATE KEY")) || bytes.Contains(i.private, []byte("PRIVATE KEY")) {
		i.core.t.Errorf("%s keeps a private key in its state", i.typeName)
	}
}
