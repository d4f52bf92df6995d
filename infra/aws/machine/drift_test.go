package machine

import (
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

// TestDiffMetadata checks the text of findings about the metadata service.
func TestDiffMetadata(t *testing.T) {
	good := types.InstanceMetadataOptionsResponse{HttpTokens: types.HttpTokensStateRequired, HttpPutResponseHopLimit: sdk.Int32(1), HttpEndpoint: types.InstanceMetadataEndpointStateEnabled}
	bad := types.InstanceMetadataOptionsResponse{HttpTokens: types.HttpTokensStateOptional, HttpPutResponseHopLimit: sdk.Int32(2), HttpEndpoint: types.InstanceMetadataEndpointStateDisabled,
		InstanceMetadataTags: types.InstanceMetadataTagsStateEnabled, HttpProtocolIpv6: types.InstanceMetadataProtocolStateEnabled}
	for _, tt := range []struct {
		found []finding.Finding
		want  string
	}{
		{diffMetadata(good), ""},
		{diffMetadata(bad), "metadata service: tokens are optional, wanted required, hop limit is 2, wanted 1, endpoint is disabled, wanted enabled, instance tags are enabled, wanted disabled, IPv6 is enabled, wanted disabled"},
	} {
		if got := finding.Words(tt.found); got != tt.want {
			t.Errorf("%q, wanted %q", got, tt.want)
		}
	}
}
