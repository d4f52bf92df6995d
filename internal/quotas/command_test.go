package quotas

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	ssmtypes "github.com/aws/aws-sdk-go-v2/service/ssm/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/e2e/account"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	ec2lab "github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
)

const private = "need/testdata/private.json"

// open makes an account, and points the environment at it.
func open(t *testing.T, quotas ec2lab.Quotas) (*account.Account, *infraaws.Client) {
	t.Helper()
	a := account.New(t, func(c *cloud.Config) { c.Quotas = quotas })
	for name, value := range map[string]string{
		"AWS_ENDPOINT_URL": a.URL, "AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": account.AccessKey, "AWS_SECRET_ACCESS_KEY": account.SecretKey,
		"AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull, "AWS_EC2_METADATA_DISABLED": "true",
	} {
		t.Setenv(name, value)
	}
	client, err := infraaws.New(t.Context(), infraaws.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return a, client
}

// run runs the command, and returns the fields of the table by the names of the quotas, and the other lines.
func run(t *testing.T, args ...string) (table map[string][]string, rest string, err error) {
	t.Helper()
	var out bytes.Buffer
	err = Command(t.Context(), args, strings.NewReader(""), &out, io.Discard)
	table = map[string][]string{}
	for line := range strings.Lines(out.String()) {
		fields := slices.DeleteFunc(strings.Split(strings.TrimSpace(line), "  "), func(s string) bool { return s == "" })
		if len(fields) != 5 {
			rest += line
			continue
		}
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		table[fields[0]] = fields[1:]
	}
	return table, rest, err
}

func wants(t *testing.T, got, want map[string][]string) {
	t.Helper()
	for name, w := range want {
		if !slices.Equal(got[name], w) {
			t.Errorf("%s: %q, want %q", name, got[name], w)
		}
	}
}

func must(t *testing.T, _ any, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestNewAccount: one cluster of six small machines fits into a new account but for its vCPUs.
func TestNewAccount(t *testing.T) {
	open(t, ec2lab.Quotas{})
	table, rest, err := run(t, "-region", "us-east-1", private)
	if err == nil || err.Error() != "the plan does not fit into the account: 1 of its quotas too small" {
		t.Error(err)
	}
	wants(t, table, map[string][]string{
		"QUOTA": {"CODE", "NEEDED", "USED", "LIMIT"},
		"vCPUs of running On-Demand Standard instances": {"L-1216C47A", "12", "0", "5"},
		"VPCs":                                   {"L-F678F1CE", "1", "0", "5"},
		"internet gateways":                      {"L-A4707A72", "1", "0", "5"},
		"Elastic IPs":                            {"L-0263D0A3", "1", "0", "5"},
		"NAT gateways in one availability zone":  {"L-FE5A380F", "1", "0", "5"},
		"EC2 Instance Connect Endpoints":         {"-", "1", "0", "5"},
		"security groups":                        {"L-E79EC296", "7", "0", "2500"},
		"network interfaces":                     {"L-DF5E4CA3", "9", "0", "5000"},
		"Network Load Balancers":                 {"L-69A177A2", "1", "0", "50"},
		"target groups":                          {"L-B22855CB", "1", "0", "3000"},
		"TiB of gp3 volumes":                     {"L-7A658B76", "0.12", "0", "50"},
		"routes of one route table":              {"L-93826ACB", "4", "0", "500"},
		"standard parameters of Systems Manager": {"-", "10", "0", "10000"},
	})
	if len(table) != 14 {
		t.Errorf("%q", table)
	}
	want := "SHORTAGE: vCPUs of running On-Demand Standard instances (L-1216C47A): 12 needed and 0 used, and the limit is 5. Ask for at least 12: " +
		"aws service-quotas request-service-quota-increase --service-code ec2 --quota-code L-1216C47A --desired-value 12\n"
	if !strings.HasPrefix(rest, "Account 123456789012, region us-east-1\n") || !strings.HasSuffix(rest, want) || strings.Count(rest, "SHORTAGE") != 1 {
		t.Errorf("%s", rest)
	}
}

// TestOtherCredentials: the command says when the provider of the plan has credentials of its own.
func TestOtherCredentials(t *testing.T) {
	open(t, ec2lab.Quotas{})
	name := filepath.Join(t.TempDir(), "plan.json")
	for _, tc := range []struct{ arguments, want string }{
		{`"region":{"constant_value":"us-east-1"}`, ""},
		{`"profile":{"constant_value":"admin"},"assume_role":{"references":["var.role"]}`, "note: the provider of the plan has assume_role, profile: it may use another account than the credentials of this command\n"},
	} {
		plan := `{"format_version":"1.2","planned_values":{},"variables":{"role":{"value":{"role_arn":"arn"}}},"configuration":{"provider_config":{"k8s":{"name":"k8s","expressions":{` + tc.arguments + `}}}}}`
		must(t, nil, os.WriteFile(name, []byte(plan), 0o600))
		_, rest, err := run(t, name)
		must(t, nil, err)
		if want := "Account 123456789012, region us-east-1\nThe plan makes nothing that these quotas limit.\n" + tc.want; rest != want {
			t.Errorf("%s: %q, want %q", tc.arguments, rest, want)
		}
	}
}

// TestUsed adds what the account uses.
func TestUsed(t *testing.T) {
	_, c := open(t, ec2lab.Quotas{VCPUs: 16, VPCs: 6})
	ctx := t.Context()
	vpc, err := c.EC2.CreateVpc(ctx, &ec2.CreateVpcInput{CidrBlock: aws.String("10.0.0.0/16")})
	must(t, vpc, err)
	subnet, err := c.EC2.CreateSubnet(ctx, &ec2.CreateSubnetInput{VpcId: vpc.Vpc.VpcId, CidrBlock: aws.String("10.0.0.0/20"), AvailabilityZone: aws.String("us-east-1b")})
	must(t, subnet, err)
	gateway, err := c.EC2.CreateInternetGateway(ctx, &ec2.CreateInternetGatewayInput{})
	must(t, gateway, err)
	_, err = c.EC2.AttachInternetGateway(ctx, &ec2.AttachInternetGatewayInput{InternetGatewayId: gateway.InternetGateway.InternetGatewayId, VpcId: vpc.Vpc.VpcId})
	must(t, nil, err)
	for range 5 {
		address, err := c.EC2.AllocateAddress(ctx, &ec2.AllocateAddressInput{})
		must(t, address, err)
		nat, err := c.EC2.CreateNatGateway(ctx, &ec2.CreateNatGatewayInput{SubnetId: subnet.Subnet.SubnetId, AllocationId: address.AllocationId})
		must(t, nat, err)
	}
	_, err = c.EC2.RunInstances(ctx, &ec2.RunInstancesInput{
		ImageId: aws.String(account.ImageID), InstanceType: types.InstanceTypeT3Small, MinCount: aws.Int32(3), MaxCount: aws.Int32(3), SubnetId: subnet.Subnet.SubnetId,
	})
	must(t, nil, err)
	for i, typ := range []types.VolumeType{types.VolumeTypeGp3, types.VolumeTypeGp2} {
		_, err = c.EC2.CreateVolume(ctx, &ec2.CreateVolumeInput{AvailabilityZone: aws.String("us-east-1a"), Size: aws.Int32(int32(2048 * (i + 1))), VolumeType: typ})
		must(t, nil, err)
	}
	_, err = c.ELB.CreateLoadBalancer(ctx, &elb.CreateLoadBalancerInput{Name: aws.String("one"), Type: elbtypes.LoadBalancerTypeEnumNetwork, Scheme: elbtypes.LoadBalancerSchemeEnumInternal, Subnets: []string{*subnet.Subnet.SubnetId}})
	must(t, nil, err)
	for _, name := range []string{"/a", "/b", "/c"} {
		_, err = c.SSM.PutParameter(ctx, &ssm.PutParameterInput{Name: &name, Value: &name, Type: ssmtypes.ParameterTypeString})
		must(t, nil, err)
	}
	table, rest, err := run(t, "-region", "us-east-1", private)
	if err == nil || !strings.Contains(err.Error(), "3 of its quotas too small") {
		t.Errorf("%v\n%s", err, rest)
	}
	wants(t, table, map[string][]string{
		"vCPUs of running On-Demand Standard instances": {"L-1216C47A", "12", "6", "16"},
		"VPCs":                                   {"L-F678F1CE", "1", "1", "6"},
		"internet gateways":                      {"L-A4707A72", "1", "1", "6"},
		"Elastic IPs":                            {"L-0263D0A3", "1", "5", "5"},
		"NAT gateways in one availability zone":  {"L-FE5A380F", "1", "5", "5"},
		"security groups":                        {"L-E79EC296", "7", "1", "2500"},
		"network interfaces":                     {"L-DF5E4CA3", "9", "9", "5000"},
		"Network Load Balancers":                 {"L-69A177A2", "1", "1", "50"},
		"target groups":                          {"L-B22855CB", "1", "0", "3000"},
		"TiB of gp3 volumes":                     {"L-7A658B76", "0.12", "2.02", "50"},
		"standard parameters of Systems Manager": {"-", "10", "3", "10000"},
	})
	for _, want := range []string{"L-1216C47A --desired-value 18\n", "--service-code ec2 --quota-code L-0263D0A3 --desired-value 6\n", "--service-code vpc --quota-code L-FE5A380F --desired-value 6\n"} {
		if !strings.Contains(rest, want) {
			t.Errorf("%q is missing in\n%s", want, rest)
		}
	}

	// A plan in an existing VPC adds its routes to those of the VPC's tables.
	tables, err := c.EC2.DescribeRouteTables(ctx, &ec2.DescribeRouteTablesInput{})
	must(t, tables, err)
	for _, cidr := range []string{"10.1.0.0/16", "10.2.0.0/16"} {
		_, err = c.EC2.CreateRoute(ctx, &ec2.CreateRouteInput{RouteTableId: tables.RouteTables[0].RouteTableId, DestinationCidrBlock: &cidr, GatewayId: gateway.InternetGateway.InternetGatewayId})
		must(t, nil, err)
	}
	table, _, _ = run(t, "-region", "us-east-1", edited(t, func(kind string, change, after map[string]any) {
		if network, ok := after["network"].(map[string]any); ok {
			network["vpc_id"] = *vpc.Vpc.VpcId
		}
	}))
	wants(t, table, map[string][]string{"routes of one route table": {"L-93826ACB", "3", "2", "500"}})

	// A network that the plan deletes takes its own VPC away, and not one that it has adopted.
	gone := edited(t, func(kind string, change, after map[string]any) {
		if kind == "k8s_network" {
			before := map[string]any{"cluster": "demo", "vpc_id": *vpc.Vpc.VpcId}
			change["actions"], change["before"] = []string{"delete", "create"}, before
		}
	})
	table, _, _ = run(t, "-region", "us-east-1", gone)
	wants(t, table, map[string][]string{"VPCs": {"L-F678F1CE", "1", "1", "6"}})
	_, err = c.EC2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{*vpc.Vpc.VpcId}, Tags: []types.Tag{
		{Key: aws.String(infraaws.TagCluster), Value: aws.String("demo")}, {Key: aws.String(infraaws.TagKind), Value: aws.String(infraaws.KindNetwork)}}})
	must(t, nil, err)
	if table, _, _ = run(t, "-region", "us-east-1", gone); table["VPCs"] != nil {
		t.Errorf("VPCs: %q", table["VPCs"])
	}
}

// edited returns the file of a plan that a test has changed.
func edited(t *testing.T, f func(kind string, change, after map[string]any)) string {
	t.Helper()
	raw, err := os.ReadFile(private)
	must(t, raw, err)
	var doc struct {
		Format    string           `json:"format_version"`
		Resources []map[string]any `json:"resource_changes"`
	}
	if err := json.Unmarshal(raw, &doc); err != nil {
		t.Fatal(err)
	}
	for _, r := range doc.Resources {
		change, _ := r["change"].(map[string]any)
		after, _ := change["after"].(map[string]any)
		kind, _ := r["type"].(string)
		f(kind, change, after)
	}
	raw, err = json.Marshal(doc)
	must(t, raw, err)
	name := filepath.Join(t.TempDir(), "plan.json")
	must(t, nil, os.WriteFile(name, raw, 0o600))
	return name
}

// TestDenied: without permissions the defaults of AWS are assumed, and the output says so.
func TestDenied(t *testing.T) {
	a, _ := open(t, ec2lab.Quotas{VCPUs: 64})
	as := func(statements string) {
		u, err := a.Cloud.Identities().PutUser("reader", iam.Entity{Policies: []string{`{"Version":"2012-10-17","Statement":[` + statements + `]}`}})
		must(t, u, err)
		t.Setenv("AWS_ACCESS_KEY_ID", u.AccessKeyID)
		t.Setenv("AWS_SECRET_ACCESS_KEY", u.SecretAccessKey)
	}
	as(`{"Effect":"Allow","Action":["ec2:Describe*","ssm:DescribeParameters","elasticloadbalancing:Describe*"],"Resource":"*"}`)
	table, rest, err := run(t, "-region", "us-east-1", private)
	if err == nil || !strings.Contains(rest, "note: VPCs (L-F678F1CE): the limit is the default of AWS: no permission for servicequotas:GetServiceQuota\n") {
		t.Errorf("%v\n%s", err, rest)
	}
	wants(t, table, map[string][]string{"vCPUs of running On-Demand Standard instances": {"L-1216C47A", "12", "0", "5"}})

	as(`{"Effect":"Allow","Action":["ec2:DescribeInstance*","servicequotas:GetServiceQuota"],"Resource":"*"}`)
	table, rest, err = run(t, "-region", "us-east-1", private)
	if err != nil {
		t.Errorf("%v\n%s", err, rest)
	}
	wants(t, table, map[string][]string{
		"vCPUs of running On-Demand Standard instances": {"L-1216C47A", "12", "0", "64"}, "security groups": {"L-E79EC296", "7", "?", "2500"},
	})
	for _, want := range []string{"note: VPCs (L-F678F1CE): what the account uses is not known: no permission for ec2:DescribeVpcs\n",
		"note: VPCs (L-F678F1CE): the limit is the default of AWS: no permission for servicequotas:GetAWSDefaultServiceQuota\n"} {
		if !strings.Contains(rest, want) {
			t.Errorf("%q is missing in\n%s", want, rest)
		}
	}

	as(`{"Effect":"Allow","Action":"servicequotas:*","Resource":"*"}`)
	table, rest, err = run(t, "-region", "us-east-1", private)
	if err == nil || err.Error() != "vCPUs could not be compared: no permission for ec2:DescribeInstanceTypes" {
		t.Errorf("%v\n%s", err, rest)
	}
	wants(t, table, map[string][]string{"vCPUs of running On-Demand Standard instances": {"L-1216C47A", "?", "?", "64"}, "VPCs": {"L-F678F1CE", "1", "?", "5"}})
}

// TestBadInput: what is no plan, and an account that cannot be asked, are errors before anything is printed.
func TestBadInput(t *testing.T) {
	open(t, ec2lab.Quotas{})
	binary := filepath.Join(t.TempDir(), "plan.tfplan")
	must(t, nil, os.WriteFile(binary, []byte("PK\x03\x04..."), 0o600))
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "quotas needs the file of one plan"},
		{[]string{private, private}, "quotas needs the file of one plan"},
		{[]string{"-nothing"}, "flag provided but not defined"},
		{[]string{"-"}, "-: this is not the output of `terraform show -json PLANFILE`"},
		{[]string{binary}, "plan.tfplan: this is the plan file itself"},
		{[]string{private}, "not eu-central-1"}, // the plan's region is eu-central-1, and this account is elsewhere
	} {
		if table, rest, err := run(t, c.args...); err == nil || !strings.Contains(err.Error()+rest, c.want) || len(table) > 0 {
			t.Errorf("%q: %v, want %q; %s", c.args, err, c.want, rest)
		}
	}
	if _, _, err := run(t, "nowhere.json"); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, _, err := run(t, "-help"); err != nil {
		t.Error(err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	if _, rest, err := run(t, "-region", "us-east-1", private); err == nil || !infraaws.Unconfigured(err) {
		t.Errorf("%v\n%s", err, rest)
	}
}
