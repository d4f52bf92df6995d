package machine

import (
	"context"
	"fmt"
	"slices"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
)

// The credit options of burstable instances.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/burstable-performance-instances.html
const (
	CreditsStandard  = "standard"
	CreditsUnlimited = "unlimited"
)

// burstable reports whether a type earns CPU credits.
func burstable(name string) bool {
	parts := instanceType.FindStringSubmatch(name)
	return parts != nil && parts[1] == "t" && parts[2] != "1" // t1 has no options
}

// CheckCPUCredits reports a credit option for an instance type that has none.
func CheckCPUCredits(option, instanceType string) (errs invalid.Fields) {
	if option != "" && instanceType != "" && !burstable(instanceType) {
		errs.Say("cpu_credits", "No CPU credits", "%s is no burstable instance type, and only those (t2, t3, t3a) have CPU credits: remove cpu_credits, or choose a type such as %s.", instanceType, aws.DefaultInstanceType)
	}
	return errs
}

func creditsSpec(option string) *types.CreditSpecificationRequest {
	if option == "" {
		return nil
	}
	return &types.CreditSpecificationRequest{CpuCredits: &option}
}

// describeCredits returns the credit options of the instances that have one. With a filter, EC2 does not fail
// for instances that are not burstable, and lists only instances with the option unlimited: all other
// burstable instances are standard.
func describeCredits(ctx context.Context, c *aws.Client, ids []string) (map[string]string, error) {
	out := map[string]string{}
	for some := range slices.Chunk(ids, aws.FilterValues) {
		found, err := aws.All(ctx, ec2.NewDescribeInstanceCreditSpecificationsPaginator(c.EC2, &ec2.DescribeInstanceCreditSpecificationsInput{
			Filters: []types.Filter{aws.Filter("instance-id", some...)}, MaxResults: sdk.Int32(1000),
		}), func(p *ec2.DescribeInstanceCreditSpecificationsOutput) []types.InstanceCreditSpecification {
			return p.InstanceCreditSpecifications
		})
		if err != nil {
			return nil, fmt.Errorf("describe the CPU credits: %w", err)
		}
		for _, i := range found {
			out[sdk.ToString(i.InstanceId)] = sdk.ToString(i.CpuCredits)
		}
	}
	return out, nil
}

// observeCredits reads the credit option of an instance, alone. The option stays empty if none is wanted.
func observeCredits(ctx context.Context, c *aws.Client, spec Spec, o *observation) error {
	if spec.CPUCredits == "" || !burstable(string(o.instance.InstanceType)) {
		return nil
	}
	id := sdk.ToString(o.instance.InstanceId)
	found, _, err := memoryOf(c).lookups.credits.Ask(ctx, id)
	o.setCredits(found)
	return err
}

// setCredits sets the credit option that EC2 lists, empty if it does not list the instance.
func (o *observation) setCredits(listed string) {
	if o.credits = listed; listed == "" {
		o.credits = CreditsStandard
	}
}

// changeCredits changes the credit option of a running or stopped instance. EC2 says in a successful answer
// that it has not changed it.
func changeCredits(ctx context.Context, c *aws.Client, id, option string) error {
	out, err := c.EC2.ModifyInstanceCreditSpecification(ctx, &ec2.ModifyInstanceCreditSpecificationInput{
		InstanceCreditSpecifications: []types.InstanceCreditSpecificationRequest{{InstanceId: &id, CpuCredits: &option}},
	})
	if err != nil {
		return fmt.Errorf("change its CPU credits to %s: %w", option, err)
	}
	for _, refused := range out.UnsuccessfulInstanceCreditSpecifications {
		if refused.Error != nil {
			return fmt.Errorf("change its CPU credits to %s: EC2 has not changed them: %s: %s", option, refused.Error.Code, sdk.ToString(refused.Error.Message))
		}
	}
	return nil
}

// creditsAfter gives an instance that has got another type the wanted credit option: before, its type may
// have had none.
func creditsAfter(ctx context.Context, c *aws.Client, spec Spec, id string) error {
	found, err := describeCredits(ctx, c, []string{id})
	var o observation
	if o.setCredits(found[id]); err != nil || o.credits == spec.CPUCredits {
		return err
	}
	return changeCredits(ctx, c, id, spec.CPUCredits)
}
