package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"
	"github.com/aws/smithy-go"
)

// quota is a limit of the account, and how much of it the cluster needs.
type quota struct {
	service, code, name string // as Service Quotas has them
	needs               int
}

// standard matches the types of the Standard families. Types of other families, such as trn1 and mac2, have quotas of their own.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-on-demand-instances.html
var standard = regexp.MustCompile(`^(a|c|d|h|i|im|is|m|r|t|z)[0-9]`)

// quotas returns the quotas that a plan needs. vcpus are the vCPUs of its instance types.
func (p planned) quotas(vcpus map[string]int) []quota {
	onDemand := 0
	for typ, n := range p.instances {
		if standard.MatchString(typ) {
			onDemand += n * vcpus[typ]
		}
	}
	return slices.DeleteFunc([]quota{
		{"ec2", "L-1216C47A", "vCPUs of running On-Demand Standard instances", onDemand},
		{"ec2", "L-0263D0A3", "Elastic IPs", p.elasticIPs},
		{"vpc", "L-F678F1CE", "VPCs", p.vpcs},
	}, func(q quota) bool { return q.needs == 0 })
}

// checkQuotas says which quotas the cluster needs, and fails if the account has less. It needs no permission: what it may
// not read is only said.
func (t *trial) checkQuotas(ctx context.Context) error {
	say := func(format string, args ...any) {
		t.report.Quotas = append(t.report.Quotas, fmt.Sprintf(format, args...))
	}
	vcpus, err := t.account.vcpus(ctx, t.planned.instances)
	if err != nil {
		say("vCPUs of the instances: unknown (DescribeInstanceTypes: %s)", codeOf(err))
	}
	settings, err := config.LoadDefaultConfig(ctx, config.WithRegion(t.account.client.Region))
	if err != nil {
		return err
	}
	client := servicequotas.NewFromConfig(settings)
	var errs []error
	for _, q := range t.planned.quotas(vcpus) {
		needed := fmt.Sprintf("%s (%s): %d needed", q.name, q.code, q.needs)
		out, err := client.GetServiceQuota(ctx, &servicequotas.GetServiceQuotaInput{ServiceCode: &q.service, QuotaCode: &q.code})
		if err != nil {
			say("%s, the account's quota is unknown (GetServiceQuota: %s)", needed, codeOf(err))
			continue
		}
		has := 0.0
		if out.Quota != nil {
			has = sdk.ToFloat64(out.Quota.Value)
		}
		say("%s, the account's quota is %.0f, of which the account may use a part already", needed, has)
		if has < float64(q.needs) {
			errs = append(errs, fmt.Errorf("%s, and the account's quota is %.0f: ask for more with `aws service-quotas request-service-quota-increase "+
				"--service-code %s --quota-code %s --desired-value N`", needed, has, q.service, q.code))
		}
	}
	return errors.Join(errs...)
}

// vcpus returns how many vCPUs instance types have.
func (a *account) vcpus(ctx context.Context, instances map[string]int) (map[string]int, error) {
	in := &ec2.DescribeInstanceTypesInput{}
	for _, name := range slices.Sorted(maps.Keys(instances)) {
		in.InstanceTypes = append(in.InstanceTypes, types.InstanceType(name))
	}
	out, err := a.client.EC2.DescribeInstanceTypes(ctx, in)
	if err != nil {
		return nil, err
	}
	found := map[string]int{}
	for _, t := range out.InstanceTypes {
		if t.VCpuInfo != nil {
			found[string(t.InstanceType)] = int(sdk.ToInt32(t.VCpuInfo.DefaultVCpus))
		}
	}
	return found, nil
}

// codeOf returns AWS's code of an error, or the error itself if AWS has not answered.
func codeOf(err error) string {
	if api := (smithy.APIError)(nil); errors.As(err, &api) {
		return api.ErrorCode()
	}
	return err.Error()
}
