package backup_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
)

// testAction invokes the action k8s_etcd_snapshot as Terraform 1.14 does, over the plugin protocol: the
// Terraform at hand may be older.
func (w *world) testAction(t *testing.T) {
	for _, setting := range suite.Env() {
		name, value, _ := strings.Cut(setting, "=")
		t.Setenv(name, value)
	}
	p := provider.New("test")
	defer func() { _ = p.Close() }()
	server := providerserver.NewProtocol6(p)()
	schemas, err := server.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil || len(schemas.Diagnostics) > 0 {
		t.Fatal(err, schemas.Diagnostics)
	}
	configured, err := server.ConfigureProvider(t.Context(), &tfprotov6.ConfigureProviderRequest{Config: dynamic(t, schemas.Provider.ValueType(), nil)})
	if err != nil || len(configured.Diagnostics) > 0 {
		t.Fatal(err, configured.Diagnostics)
	}
	typ := schemas.ActionSchemas["k8s_etcd_snapshot"].Schema.ValueType()
	invoke := func(hosts any) (said, failed string) {
		t.Helper()
		stream, err := server.(tfprotov6.ActionServer).InvokeAction(t.Context(), &tfprotov6.InvokeActionRequest{
			ActionType: "k8s_etcd_snapshot", Config: dynamic(t, typ, map[string]any{"hosts": hosts})})
		if err != nil {
			t.Fatal(err)
		}
		for event := range stream.Events {
			switch e := event.Type.(type) {
			case tfprotov6.ProgressInvokeActionEventType:
				said += e.Message
			case tfprotov6.CompletedInvokeActionEventType:
				for _, d := range e.Diagnostics {
					failed += d.Summary + ": " + d.Detail
				}
			}
		}
		return said, failed
	}
	known := w.described(t, bucket)
	said, failed := invoke(w.hosts(t))
	var name string
	if _, err := fmt.Sscanf(said, "Snapshot %s of etcd:", &name); err != nil || failed != "" || slices.Contains(known, name) || !slices.Contains(w.described(t, bucket), name) {
		t.Errorf("said %q, failed %q; the bucket has %q", said, failed, w.described(t, bucket))
	}
	if _, failed := invoke([]any{}); !strings.Contains(failed, "Missing hosts") {
		t.Errorf("without hosts: %q", failed)
	}
	if _, err := w.console(t, "controller-0", "systemctl stop etcd"); err != nil {
		t.Fatal(err)
	}
	_, failed = invoke(w.hosts(t)[:1])
	if !strings.Contains(failed, "Cannot take a snapshot of etcd") || !strings.Contains(failed, "asking etcd for its status") || !strings.Contains(failed, "controller-0") {
		t.Errorf("with a stopped member: %q", failed)
	}
	said, failed = invoke(w.hosts(t)) // another member takes it
	if !strings.Contains(said, "taken on controller-1") {
		t.Errorf("said %q, failed %q", said, failed)
	}
	w.Apply(t)
	w.NoChanges(t)
}

// hosts returns the argument of the resource, from the state.
func (w *world) hosts(t *testing.T) []any {
	t.Helper()
	var backup struct {
		Hosts []any `json:"hosts"`
	}
	w.backup(t, &backup)
	return backup.Hosts
}

// dynamic makes a value of a type from JSON's types. What is missing is null.
func dynamic(t *testing.T, typ tftypes.Type, v any) *tfprotov6.DynamicValue {
	t.Helper()
	out, err := tfprotov6.NewDynamicValue(typ, valueOf(t, typ, v))
	if err != nil {
		t.Fatal(err)
	}
	return &out
}

func valueOf(t *testing.T, typ tftypes.Type, v any) tftypes.Value {
	t.Helper()
	switch typ := typ.(type) {
	case tftypes.Object:
		given, _ := v.(map[string]any)
		fields := map[string]tftypes.Value{}
		for name, of := range typ.AttributeTypes {
			if given[name] == nil {
				fields[name] = tftypes.NewValue(of, nil)
				continue
			}
			fields[name] = valueOf(t, of, given[name])
		}
		return tftypes.NewValue(typ, fields)
	case tftypes.List:
		items := []tftypes.Value{}
		for _, item := range v.([]any) {
			items = append(items, valueOf(t, typ.ElementType, item))
		}
		return tftypes.NewValue(typ, items)
	}
	return tftypes.NewValue(typ, v)
}
