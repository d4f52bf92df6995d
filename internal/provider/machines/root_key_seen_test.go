package machines_test

import (
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/types"

	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/machines"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestSeeRootKey: the state takes over the volume's key only if it certainly differs from the known
// key.
func TestSeeRootKey(t *testing.T) {
	t.Parallel()
	const other = "arn:aws:kms:us-east-1:123456789012:key/" + providertest.OtherKeyID
	for _, tt := range []struct{ state, found, want types.String }{
		{types.StringNull(), types.StringValue(other), types.StringNull()},
		{types.StringValue("alias/nodes"), types.StringValue(other), types.StringValue("alias/nodes")},
		{types.StringValue(providertest.RootKeyID), types.StringValue(providertest.RootKeyARN), types.StringValue(providertest.RootKeyID)},
		{types.StringValue(providertest.RootKeyID), types.StringNull(), types.StringValue(providertest.RootKeyID)},
		{types.StringValue(providertest.RootKeyID), types.StringValue(other), types.StringValue(other)},
		{types.StringValue(providertest.RootKeyARN), types.StringValue(other), types.StringValue(other)},
	} {
		m := machines.MachineModel{RootVolumeKey: tt.state}
		m.SeeRootKey(awsmachine.Machine{RootVolumeKey: tt.found.ValueString()})
		if !m.RootVolumeKey.Equal(tt.want) {
			t.Errorf("%v, found %v: %v, want %v", tt.state, tt.found, m.RootVolumeKey, tt.want)
		}
	}
}
