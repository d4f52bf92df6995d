package machines_test

import (
	"fmt"
	"strings"
	"testing"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	ec2lab "github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/fault"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestMetadataDefaults launches a machine in an account whose instances show their tags in the metadata, which is refused
// for keys with a slash, and have other options too.
func TestMetadataDefaults(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	if _, err := c.Client.EC2.ModifyInstanceMetadataDefaults(t.Context(), &ec2.ModifyInstanceMetadataDefaultsInput{
		HttpTokens: types.MetadataDefaultHttpTokensStateOptional, HttpPutResponseHopLimit: sdk.Int32(5), HttpEndpoint: types.DefaultInstanceMetadataEndpointStateDisabled,
		InstanceMetadataTags: types.DefaultInstanceMetadataTagsStateEnabled,
	}); err != nil {
		t.Fatal(err)
	}
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	worker.Must(providertest.WorkerConfig(network))
	worker.Converged(providertest.WorkerConfig(network))
	o := c.Found(t, worker).MetadataOptions
	if o.HttpTokens != types.HttpTokensStateRequired || *o.HttpPutResponseHopLimit != 1 || o.HttpEndpoint != types.InstanceMetadataEndpointStateEnabled ||
		o.InstanceMetadataTags != types.InstanceMetadataTagsStateDisabled || o.HttpProtocolIpv6 != types.InstanceMetadataProtocolStateDisabled {
		t.Errorf("the metadata service: %+v", *o)
	}
}

// TestDefaultKey: an account encrypts by default, with a key that its callers may not use. The errors say which key it
// is, although the configuration names none.
func TestDefaultKey(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	providertest.Answer[*ec2.EnableEbsEncryptionByDefaultOutput](t)(c.Client.EC2.EnableEbsEncryptionByDefault(t.Context(), &ec2.EnableEbsEncryptionByDefaultInput{}))
	providertest.Answer[*ec2.ModifyEbsDefaultKmsKeyIdOutput](t)(c.Client.EC2.ModifyEbsDefaultKmsKeyId(t.Context(), &ec2.ModifyEbsDefaultKmsKeyIdInput{KmsKeyId: sdk.String("alias/team")}))
	c.Account.Fault(fault.Fault{Kind: fault.Key, Name: "alias/team"})
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	needed := []string{"the account's default KMS key for EBS, which `aws ec2 get-ebs-default-kms-key-id` shows", "its policy or a grant must allow the caller kms:CreateGrant"}
	providertest.Mention(t, c.Instance("k8s_machine").Attempt(providertest.WorkerConfig(network)), needed...)
	providertest.Mention(t, c.Instance("k8s_volume").Attempt(providertest.Values{"name": "data", "network": network.Get("ref"), "size": 1}), needed...)
}

// TestAllowedImages: the account hides the images of all owners but some. What does not exist may be hidden.
func TestAllowedImages(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	allow := func(owner string) {
		providertest.Answer[*ec2.ReplaceImageCriteriaInAllowedImagesSettingsOutput](t)(c.Client.EC2.ReplaceImageCriteriaInAllowedImagesSettings(t.Context(),
			&ec2.ReplaceImageCriteriaInAllowedImagesSettingsInput{ImageCriteria: []types.ImageCriterionRequest{{ImageProviders: []string{owner}}}}))
	}
	allow("amazon")
	providertest.Answer[*ec2.EnableAllowedImagesSettingsOutput](t)(c.Client.EC2.EnableAllowedImagesSettings(t.Context(),
		&ec2.EnableAllowedImagesSettingsInput{AllowedImagesSettingsState: types.AllowedImagesSettingsEnabledStateEnabled}))
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	config := providertest.WorkerConfig(network)
	hidden := []string{"Allowed AMIs", "`aws ec2 get-allowed-images-settings`", "136693071363"}
	providertest.Mention(t, c.Instance("k8s_machine").Attempt(config), append(hidden, "does not exist in region us-east-1, or is hidden")...)
	filter := providertest.Values{"image_filter": providertest.Values{"name": "debian-13-*", "owners": []any{"136693071363"}}}
	providertest.Mention(t, c.Instance("k8s_machine").Attempt(providertest.With(config, filter)), append(hidden, "there are no images")...)
	providertest.Mention(t, c.Instance("k8s_machine").Attempt(providertest.With(config, providertest.Values{"ami": "ami-00000000000000001"})), "which must include its owner")
	own := providertest.Values{"image_filter": providertest.Values{"name": "mine-*", "owners": []any{"self"}}}
	if said := c.Instance("k8s_machine").Attempt(providertest.With(config, own)); !strings.Contains(said, "there are no images") || strings.Contains(said, "Allowed AMIs") {
		t.Error(said)
	}
	allow("136693071363")
	worker := c.Ends(t).Instance("k8s_machine")
	worker.Must(config)
}

// TestDebianInRegions looks for the image of machines that name none, in a region of each partition.
func TestDebianInRegions(t *testing.T) {
	t.Parallel()
	for region, refused := range map[string]string{
		"us-east-1": "", "us-gov-west-1": "",
		"cn-north-1": "in region cn-north-1 Debian publishes no such image, and there is no SSM parameter /aws/service/debian/release/13/latest/amd64 (it publishes none in China): set ami or image_filter",
	} {
		a := account.New(t, func(c *cloud.Config) { c.Region = region })
		client, err := infraaws.New(t.Context(), infraaws.Config{
			Region: region, AccessKey: account.AccessKey, SecretKey: account.SecretKey, Endpoints: infraaws.Endpoints{EC2: a.URL, ELB: a.URL, SSM: a.URL, STS: a.URL},
		})
		if err != nil {
			t.Fatal(err)
		}
		spec := awsmachine.Spec{Cluster: "demo", Name: "worker-0", InstanceType: infraaws.DefaultInstanceType}
		_, err = awsmachine.NextInRoll(t.Context(), client, spec, "")
		if refused == "" && err != nil || refused != "" && (err == nil || !strings.Contains(err.Error(), refused)) {
			t.Errorf("%s: %v", region, err)
		}
	}
}

// TestNewAccount: the errors of an account that AWS has just opened name what it lacks, and how to get it.
func TestNewAccount(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t, func(c *cloud.Config) { c.Quotas = ec2lab.Quotas{} })
	c.Account.Fault(fault.Fault{Kind: fault.FreePlan})
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	config := func(n int, instanceType string) providertest.Values {
		return providertest.With(providertest.WorkerConfig(network), providertest.Values{
			"name": fmt.Sprint("worker-", n), "private_ip": fmt.Sprint("10.240.0.2", n), "pod_cidr": fmt.Sprintf("10.200.%d.0/24", n), "instance_type": instanceType,
		})
	}
	providertest.Mention(t, c.Instance("k8s_machine").Attempt(config(0, "t3.medium")), "free-tier-eligible", "t3.small", "paid plan")
	for n := range 2 {
		c.Instance("k8s_machine").Must(config(n, "t3.small"))
	}
	providertest.Mention(t, c.Instance("k8s_machine").Attempt(config(2, "t3.small")), "VcpuLimitExceeded", "5 in a new account", "L-1216C47A", "request-service-quota-increase")
	for n := range 4 {
		c.Instance("k8s_network").Must(providertest.With(providertest.NetworkConfig(), providertest.Values{"cluster": fmt.Sprint("other-", n)}))
	}
	providertest.Mention(t, c.Instance("k8s_network").Attempt(providertest.With(providertest.NetworkConfig(), providertest.Values{"cluster": "sixth"})),
		"VpcLimitExceeded", "5 by default", "L-F678F1CE")
}
