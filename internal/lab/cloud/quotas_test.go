package cloud_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsec2 "github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/cloudtest"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
)

// TestServiceQuotas: a quota that was raised has a value of its own, every quota a default.
func TestServiceQuotas(t *testing.T) {
	l := cloudtest.New(t, func(l *cloudtest.Lab) { l.Quotas = ec2.Quotas{VCPUs: 64} })
	client, ctx := servicequotas.NewFromConfig(l.AWS), t.Context()
	value := func(service, code string) float64 {
		return *cloudtest.Must[*servicequotas.GetServiceQuotaOutput](t)(client.GetServiceQuota(ctx, &servicequotas.GetServiceQuotaInput{ServiceCode: &service, QuotaCode: &code})).Quota.Value
	}
	standard := func(service, code string) float64 {
		return *cloudtest.Must[*servicequotas.GetAWSDefaultServiceQuotaOutput](t)(client.GetAWSDefaultServiceQuota(ctx,
			&servicequotas.GetAWSDefaultServiceQuotaInput{ServiceCode: &service, QuotaCode: &code})).Quota.Value
	}
	if raised, before := value("ec2", "L-1216C47A"), standard("ec2", "L-1216C47A"); raised != 64 || before != 5 {
		t.Errorf("vCPUs: %v, default %v", raised, before)
	}
	for _, q := range []struct {
		service, code string
		standard      float64
	}{
		{"vpc", "L-F678F1CE", 5}, {"vpc", "L-A4707A72", 5}, {"ec2", "L-0263D0A3", 5}, {"vpc", "L-FE5A380F", 5}, {"vpc", "L-E79EC296", 2500}, {"vpc", "L-DF5E4CA3", 5000},
		{"elasticloadbalancing", "L-69A177A2", 50}, {"elasticloadbalancing", "L-B22855CB", 3000}, {"ebs", "L-7A658B76", 50}, {"vpc", "L-93826ACB", 500}, {"ec2", "L-34B43A08", 5},
	} {
		_, err := client.GetServiceQuota(ctx, &servicequotas.GetServiceQuotaInput{ServiceCode: &q.service, QuotaCode: &q.code})
		if cloudtest.Refused(t, err, "NoSuchResourceException"); standard(q.service, q.code) != q.standard {
			t.Errorf("%s %s: %v, want %v", q.service, q.code, standard(q.service, q.code), q.standard)
		}
	}
	_, err := client.GetAWSDefaultServiceQuota(ctx, &servicequotas.GetAWSDefaultServiceQuotaInput{ServiceCode: aws.String("vpc"), QuotaCode: aws.String("L-1216C47A")})
	cloudtest.Refused(t, err, "NoSuchResourceException")

	reader := servicequotas.NewFromConfig(l.User(t, `{"Effect":"Allow","Action":"servicequotas:GetAWSDefaultServiceQuota","Resource":"*"}`).AWS)
	_, err = reader.GetServiceQuota(ctx, &servicequotas.GetServiceQuotaInput{ServiceCode: aws.String("ec2"), QuotaCode: aws.String("L-1216C47A")})
	cloudtest.Refused(t, err, "AccessDeniedException")
	if _, err := reader.GetAWSDefaultServiceQuota(ctx, &servicequotas.GetAWSDefaultServiceQuotaInput{ServiceCode: aws.String("ec2"), QuotaCode: aws.String("L-1216C47A")}); err != nil {
		t.Error(err)
	}
}

// TestQuotasEnforced: what Service Quotas says is what the account gives.
func TestQuotasEnforced(t *testing.T) {
	l := cloudtest.New(t, func(l *cloudtest.Lab) {
		l.Quotas = ec2.Quotas{VPCs: 2, SecurityGroups: 3, Interfaces: 1, GP3: 1, VCPUs: 32}
	})
	s, ctx := l.NewSite(t), t.Context() // one VPC with its default group, one group, one gateway
	gateway := func() error {
		_, err := l.CreateInternetGateway(ctx, &awsec2.CreateInternetGatewayInput{})
		return err
	}
	group := func(name string) error {
		_, err := l.CreateSecurityGroup(ctx, &awsec2.CreateSecurityGroupInput{GroupName: &name, Description: aws.String("one"), VpcId: &s.VPC})
		return err
	}
	volume := func(gib int32, kind types.VolumeType) error {
		_, err := l.CreateVolume(ctx, &awsec2.CreateVolumeInput{AvailabilityZone: aws.String("us-east-1a"), Size: &gib, VolumeType: kind})
		return err
	}
	for _, step := range []struct {
		err  error
		code string
	}{
		{gateway(), ""}, {gateway(), "InternetGatewayLimitExceeded"},
		{group("one"), ""}, {group("two"), "SecurityGroupLimitExceeded"},
		{volume(1000, types.VolumeTypeGp3), ""}, {volume(25, types.VolumeTypeGp3), "VolumeLimitExceeded"}, {volume(25, types.VolumeTypeGp2), ""},
	} {
		if step.code == "" && step.err != nil {
			t.Error(step.err)
		} else if step.code != "" {
			cloudtest.Refused(t, step.err, step.code)
		}
	}
	if _, err := l.RunInstances(ctx, s.RunInput()); err != nil {
		t.Error(err)
	}
	_, err := l.RunInstances(ctx, s.RunInput())
	cloudtest.Refused(t, err, "NetworkInterfaceLimitExceeded")
}
