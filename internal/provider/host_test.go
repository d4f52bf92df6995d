package provider

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/iptypes"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

func TestCompleteHost(t *testing.T) {
	check := func(o types.Object) string {
		var resp validator.ObjectResponse
		completeHost{}.ValidateObject(context.Background(), validator.ObjectRequest{Path: path.Root("hosts").AtListIndex(1), ConfigValue: o}, &resp)
		var said []string
		for _, d := range resp.Diagnostics {
			said = append(said, d.Detail())
		}
		return strings.Join(said, " ")
	}
	h := hostModel{
		Name: types.StringValue("a"), Address: types.StringUnknown(), PrivateIP: iptypes.NewIPv4AddressValue("10.0.0.1"),
		HostKey: types.StringUnknown(),
	}
	if said := check(hostRef.Value(t.Context(), h)); said != "" {
		t.Errorf("a host of which something is not known yet: %s", said)
	}
	if said := check(hostRef.Unknown()); said != "" {
		t.Errorf("a host of which nothing is known yet: %s", said)
	}
	h.HostKey, h.Address = types.StringNull(), types.StringNull()
	if said := check(hostRef.Value(t.Context(), h)); said != "A host needs address. A host needs host_key." {
		t.Errorf("an incomplete host: %q", said)
	}
}

// TestCheckQuorum: machines are deleted before members can be replaced.
func TestCheckQuorum(t *testing.T) {
	t.Parallel()
	members := func(ids ...string) []hostModel {
		var out []hostModel
		for i, id := range ids {
			h := hostModel{Name: types.StringValue(fmt.Sprintf("controller-%d", i)), InstanceID: types.StringValue(id)}
			switch id {
			case "":
				h.InstanceID = types.StringNull()
			case "?":
				h.InstanceID = types.StringUnknown()
			}
			out = append(out, h)
		}
		return out
	}
	for _, test := range []struct {
		name        string
		before, now []hostModel
		want        string // part of the error or warning
		severity    diag.Severity
	}{
		{"nothing happens", members("a", "b", "c"), members("a", "b", "c"), "", 0},
		{"one is replaced", members("a", "b", "c"), members("a", "?", "c"), "", 0},
		{"one has been replaced", members("a", "b", "c"), members("a", "d", "c"), "", 0},
		{"two are replaced", members("a", "b", "c"), members("?", "b", "?"), "controller-0, controller-2 would", diag.SeverityError},
		{"two of five are replaced", members("a", "b", "c", "d", "e"), members("?", "b", "?", "d", "e"), "", 0},
		{"five become three, one of them new", members("a", "b", "c", "d", "e"), members("?", "b", "c"), "controller-0, controller-3, controller-4", diag.SeverityError},
		{"three become five", members("a", "b", "c"), members("a", "b", "c", "?", "?"), "", 0},
		{"five become three", members("a", "b", "c", "d", "e"), members("a", "b", "c"), "", 0},
		{"three become one", members("a", "b", "c"), members("a"), "controller-1, controller-2 leave", diag.SeverityWarning},
		{"machines of one's own", members("", "", ""), members("", "", ""), "", 0},
		{"the only one is replaced", members("a"), members("?"), "data would be lost", diag.SeverityError},
	} {
		var diags diag.Diagnostics
		checkQuorum(path.Root("hosts"), test.before, test.now, &diags)
		if test.want == "" && len(diags) == 0 {
			continue
		}
		if len(diags) != 1 || diags[0].Severity() != test.severity || !strings.Contains(diags[0].Detail(), test.want) {
			t.Errorf("%s: got %v, wanted %q", test.name, diags, test.want)
		}
	}
}
