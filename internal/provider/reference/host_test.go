package reference

import (
	"context"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework-nettypes/iptypes"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
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
	h := Host{
		Name: types.StringValue("a"), Address: types.StringUnknown(), PrivateIP: iptypes.NewIPv4AddressValue("10.0.0.1"),
		HostKey: types.StringUnknown(),
	}
	if said := check(OfHost.Value(t.Context(), h)); said != "" {
		t.Errorf("a host that is partly unknown: %s", said)
	}
	if said := check(OfHost.Unknown()); said != "" {
		t.Errorf("a host that is unknown: %s", said)
	}
	h.HostKey, h.Address = types.StringNull(), types.StringNull()
	if said := check(OfHost.Value(t.Context(), h)); said != "A host needs address. A host needs host_key." {
		t.Errorf("an incomplete host: %q", said)
	}
}

// TestHostOf: the programs of an imported machine are those for its processors.
func TestHostOf(t *testing.T) {
	for instanceType, want := range map[string]string{"t3.small": artifact.AMD64, "t4g.small": artifact.ARM64} {
		if h := HostOf(awsmachine.Machine{Name: "lb-0", InstanceType: instanceType}); h.Arch.ValueString() != want {
			t.Errorf("%s: %s, want %s", instanceType, h.Arch.ValueString(), want)
		}
	}
}
