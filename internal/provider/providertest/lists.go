package providertest

import (
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// Listed is one result of a list.
type Listed struct {
	Name     string
	Identity Values
	Resource Values // nil unless it was asked for
}

// List asks for resources as Terraform does, and returns what it said beside the results.
func (c *Core) List(typeName string, config Values, limit int64, whole bool) (out []Listed, said Change) {
	c.T.Helper()
	server, ok := c.Server.(tfprotov6.ListResourceServer)
	s := c.Schemas.ListResourceSchemas[typeName]
	if !ok || s == nil {
		c.T.Fatalf("no list of %s", typeName)
	}
	block := c.Dynamic(s, c.Value(s, config))
	valid, err := server.ValidateListResourceConfig(c.T.Context(), &tfprotov6.ValidateListResourceConfigRequest{TypeName: typeName, Config: block})
	if err != nil {
		c.T.Fatal(err)
	}
	if said.Note(valid.Diagnostics); len(said.Errors) > 0 {
		return nil, said
	}
	stream, err := server.ListResource(c.T.Context(), &tfprotov6.ListResourceRequest{TypeName: typeName, Config: block, Limit: limit, IncludeResource: whole})
	if err != nil {
		c.T.Fatal(err)
	}
	for r := range stream.Results {
		if said.Note(r.Diagnostics); r.Identity == nil {
			continue
		}
		read := func(d *tfprotov6.DynamicValue, t tftypes.Type) Values {
			v, err := d.Unmarshal(t)
			if err != nil {
				c.T.Fatal(err)
			}
			m, _ := Plain(v).(Values)
			return m
		}
		l := Listed{Name: r.DisplayName, Identity: read(r.Identity.IdentityData, c.Identities(typeName).ValueType())}
		if r.Resource != nil {
			l.Resource = read(r.Resource, c.Schemas.ResourceSchemas[typeName].ValueType())
		}
		out = append(out, l)
	}
	return out, said
}
