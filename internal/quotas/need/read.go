package need

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Read reads a plan, as `terraform show -json PLANFILE` and `tofu show -json PLANFILE` print it.
func Read(text []byte) (Plan, error) {
	p := Plan{Machines: map[Machine]int{}, Counts: map[Kind]int{}, NAT: map[string]int{}, Routes: map[string]int{}}
	if bytes.HasPrefix(text, []byte("PK\x03\x04")) { // a plan file is a ZIP archive
		return p, errors.New("this is the plan file itself: give the output of `terraform show -json PLANFILE`")
	}
	var doc document
	if err := json.Unmarshal(text, &doc); err != nil {
		return p, fmt.Errorf("this is not the output of `terraform show -json PLANFILE`: %w", err)
	}
	major, _, _ := strings.Cut(doc.Format, ".")
	switch {
	case doc.Format == "":
		return p, errors.New("this is not the output of `terraform show -json PLANFILE`: it has no format_version")
	case doc.Changes == nil && doc.State != nil:
		return p, errors.New("this is a state, and no plan: give `terraform show -json` the name of a plan file")
	case major != "1" || doc.Changes == nil && doc.Planned == nil:
		return p, fmt.Errorf("this is not a plan in a format that is known here: its format_version is %q, and a plan of Terraform or OpenTofu has 1.x", doc.Format)
	case doc.Errored:
		return p, errors.New("this plan has failed, and is not complete")
	}
	p.Region, p.Own = doc.provider()
	for _, c := range doc.Changes {
		if c.Mode != "managed" || !strings.HasPrefix(c.Type, "k8s_") {
			continue
		}
		if err := p.add(c); err != nil {
			return p, fmt.Errorf("%s: %w", c.Address, err)
		}
	}
	return p, nil
}

// document is a plan.
// https://developer.hashicorp.com/terraform/internals/json-format
type document struct {
	Format    string          `json:"format_version"`
	Errored   bool            `json:"errored"`
	State     json.RawMessage `json:"values"`
	Planned   json.RawMessage `json:"planned_values"`
	Changes   []change        `json:"resource_changes"`
	Variables map[string]struct {
		Value any `json:"value"`
	} `json:"variables"`
	Configuration struct {
		Providers map[string]struct {
			Name        string                     `json:"name"`
			Alias       string                     `json:"alias"`
			Module      string                     `json:"module_address"`
			Expressions map[string]json.RawMessage `json:"expressions"`
		} `json:"provider_config"`
	} `json:"configuration"`
}

type change struct {
	Address string `json:"address"`
	Mode    string `json:"mode"`
	Type    string `json:"type"`
	Change  struct {
		Actions []string        `json:"actions"`
		Before  json.RawMessage `json:"before"`
		After   json.RawMessage `json:"after"`
		Unknown json.RawMessage `json:"after_unknown"`
	} `json:"change"`
}

// credentials are the arguments of the provider that choose its credentials.
var credentials = []string{"access_key", "assume_role", "assume_role_with_web_identity", "profile", "secret_key", "shared_config_files", "shared_credentials_files", "token"}

// provider returns the region of the provider without an alias in the root module, if it is a constant or a variable, and
// the arguments that choose its credentials.
func (d document) provider() (region string, own []string) {
	for _, p := range d.Configuration.Providers {
		if p.Name != "k8s" || p.Alias != "" || p.Module != "" {
			continue
		}
		value, _ := d.value(p.Expressions["region"])
		region, _ = value.(string)
		for _, name := range credentials {
			if value, known := d.value(p.Expressions[name]); value != nil || !known {
				own = append(own, name)
			}
		}
		return region, own
	}
	return "", nil
}

// value returns the value of an argument, nil if it has none. known is false for an expression that is neither a constant
// nor a variable.
func (d document) value(raw json.RawMessage) (value any, known bool) {
	var e struct {
		Constant   any      `json:"constant_value"`
		References []string `json:"references"`
	}
	if len(raw) == 0 {
		return nil, true
	}
	if err := json.Unmarshal(raw, &e); err != nil { // such as that of an argument with others in it
		return nil, false
	}
	switch len(e.References) {
	case 0:
		var other map[string]any
		_ = json.Unmarshal(raw, &other) // an object, as above
		delete(other, "constant_value")
		return e.Constant, e.Constant != nil || len(other) == 0
	case 1:
		v, ok := d.Variables[strings.TrimPrefix(e.References[0], "var.")]
		return v.Value, ok
	}
	return nil, false
}

// add adds what a change makes, and takes away what it deletes before that.
func (p *Plan) add(c change) error {
	actions := c.Change.Actions
	if slices.Contains(actions, "forget") || slices.Contains(actions, "read") {
		return nil
	}
	var before, after resource
	var later unknown
	for _, v := range []struct {
		from json.RawMessage
		to   any
	}{{c.Change.Before, &before}, {c.Change.After, &after}, {c.Change.Unknown, &later}} {
		if len(v.from) == 0 || string(v.from) == "false" || string(v.from) == "true" {
			continue
		}
		if err := json.Unmarshal(v.from, v.to); err != nil {
			return err
		}
	}
	deletes := slices.Contains(actions, "delete")
	if there := len(c.Change.After) > 0 && string(c.Change.After) != "null"; there {
		p.count(c.Type, after, later, 1)
	}
	// An image needs a machine while it is made. It counts beside all machines of the plan. The sum is an upper bound:
	// machines that are made of the image are launched after this one has ended.
	if c.Type == "k8s_image" && slices.Contains(actions, "create") {
		after.RootType = gp3
		p.countMachine(after, 1)
	}
	// With create_before_destroy both are there for a while.
	if len(actions) == 0 || actions[0] == "create" {
		return nil
	}
	p.count(c.Type, before, unknown{}, -1)
	if deletes && c.Type == "k8s_network" {
		p.Leaves = append(p.Leaves, VPC{before.VPC, before.Cluster})
	}
	return nil
}
