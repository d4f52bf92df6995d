package provider

import (
	"context"
	"strings"
	"testing"

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
		Name: types.StringValue("a"), Address: types.StringUnknown(), PrivateIP: types.StringValue("10.0.0.1"),
		HostKey: types.StringUnknown(), PodCIDR: types.StringNull(), User: types.StringNull(), PublicIP: types.StringNull(),
		InstanceID: types.StringNull(), Port: types.Int64Null(),
	}
	if said := check(h.value()); said != "" {
		t.Errorf("a host of which something is not known yet: %s", said)
	}
	if said := check(types.ObjectUnknown(hostType.AttrTypes)); said != "" {
		t.Errorf("a host of which nothing is known yet: %s", said)
	}
	h.HostKey, h.Address = types.StringNull(), types.StringNull()
	if said := check(h.value()); said != "A host needs address. A host needs host_key." {
		t.Errorf("an incomplete host: %q", said)
	}
}
