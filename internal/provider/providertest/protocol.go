package providertest

import (
	"context"
	"sync"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
)

// Core is Terraform's side of the plugin protocol, as far as one resource at a time needs it.
type Core struct {
	T       *testing.T
	served  *provider.Provider
	ctx     context.Context // of an apply; it ends when the process is killed
	Server  tfprotov6.ProviderServer
	Schemas *tfprotov6.GetProviderSchemaResponse
}

// Unknown stands for a value that is unknown in a plan.
const Unknown = "<unknown>"

// Values is a configuration or state, with the types of JSON.
type Values = map[string]any

func NewCore(t *testing.T, p *provider.Provider, config Values) *Core {
	t.Helper()
	c := Open(t, p)
	c.Fatal(c.Configure(config))
	return c
}

// schemas are the same for every provider. Terraform also asks one of them only.
var schemas = sync.OnceValues(func() (*tfprotov6.GetProviderSchemaResponse, error) {
	return provider.Server(provider.New("test")).GetProviderSchema(context.Background(), &tfprotov6.GetProviderSchemaRequest{})
})

// Open serves a provider that is not configured yet.
func Open(t *testing.T, p *provider.Provider) *Core {
	t.Helper()
	c := &Core{T: t, served: p, ctx: t.Context(), Server: provider.Server(p)}
	var err error
	if c.Schemas, err = schemas(); err != nil {
		t.Fatal(err)
	}
	c.Fatal(c.Schemas.Diagnostics)
	t.Cleanup(func() { _ = p.Close() })
	return c
}

func (c *Core) Configure(config Values) []*tfprotov6.Diagnostic {
	c.T.Helper()
	valid, err := c.Server.ValidateProviderConfig(c.T.Context(), &tfprotov6.ValidateProviderConfigRequest{
		Config: c.Dynamic(c.Schemas.Provider, c.Value(c.Schemas.Provider, config)),
	})
	if err != nil {
		c.T.Fatal(err)
	}
	if len(valid.Diagnostics) > 0 {
		return valid.Diagnostics
	}
	resp, err := c.Server.ConfigureProvider(c.T.Context(), &tfprotov6.ConfigureProviderRequest{
		Config: c.Dynamic(c.Schemas.Provider, c.Value(c.Schemas.Provider, config)),
	})
	if err != nil {
		c.T.Fatal(err)
	}
	return resp.Diagnostics
}

func (c *Core) Fatal(diags []*tfprotov6.Diagnostic) {
	c.T.Helper()
	for _, d := range diags {
		if d.Severity == tfprotov6.DiagnosticSeverityError {
			c.T.Fatalf("%s: %s: %s", d.Attribute, d.Summary, d.Detail)
		}
	}
}

func (c *Core) Value(s *tfprotov6.Schema, v Values) tftypes.Value {
	c.T.Helper()
	return Build(s.ValueType(), v)
}

func (c *Core) Dynamic(s *tfprotov6.Schema, v tftypes.Value) *tfprotov6.DynamicValue {
	c.T.Helper()
	d, err := tfprotov6.NewDynamicValue(s.ValueType(), v)
	if err != nil {
		c.T.Fatal(err)
	}
	return &d
}

// Identities returns the schema of a resource's identity, or nil.
func (c *Core) Identities(typeName string) *tfprotov6.ResourceIdentitySchema {
	c.T.Helper()
	resp, err := c.Server.GetResourceIdentitySchemas(c.T.Context(), &tfprotov6.GetResourceIdentitySchemasRequest{})
	if err != nil {
		c.T.Fatal(err)
	}
	c.Fatal(resp.Diagnostics)
	return resp.IdentitySchemas[typeName]
}

func (c *Core) Instance(typeName string) *Instance {
	c.T.Helper()
	s := c.Schemas.ResourceSchemas[typeName]
	if s == nil {
		c.T.Fatalf("no resource %s", typeName)
	}
	return &Instance{core: c, TypeName: typeName, Schema: s, State: tftypes.NewValue(s.ValueType(), nil)}
}
