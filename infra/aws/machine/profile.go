package machine

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/invalid"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
)

// fieldProfile is the argument with the name of an instance profile.
const fieldProfile = "instance_profile"

// profileName is what IAM accepts as the name of an instance profile.
// https://docs.aws.amazon.com/IAM/latest/APIReference/API_CreateInstanceProfile.html
var profileName = regexp.MustCompile(`^[\w+=,.@-]{1,128}$`)

// CheckInstanceProfile reports a text that cannot be the name of an instance profile. Whether there
// is one, EC2 says at the launch.
func CheckInstanceProfile(name string) (errs invalid.Fields) {
	switch {
	case name == "" || profileName.MatchString(name):
	case strings.HasPrefix(name, "arn:") && strings.Contains(name, ":role/"):
		errs.Say(fieldProfile, "A role instead of an instance profile", "%q is the ARN of a role: give the name of an instance profile that has the role.", name)
	case strings.HasPrefix(name, "arn:"):
		errs.Say(fieldProfile, "An ARN instead of a name", "Give the name of the instance profile only: %q.", profileOf(name))
	default:
		errs.Say(fieldProfile, "Unusable name", "%q cannot be the name of an instance profile: IAM allows 1 to 128 letters, digits and any of _+=,.@-", name)
	}
	return errs
}

// profileOf returns the name of the instance profile with an ARN, which may have a path before it.
func profileOf(arn string) string { return arn[strings.LastIndex(arn, "/")+1:] }

// profileIn returns the name of an instance's profile, empty if it has none.
func profileIn(i types.Instance) string {
	if i.IamInstanceProfile == nil {
		return ""
	}
	return profileOf(sdk.ToString(i.IamInstanceProfile.Arn))
}

func profileSpec(name string) *types.IamInstanceProfileSpecification {
	if name == "" {
		return nil
	}
	return &types.IamInstanceProfileSpecification{Name: &name}
}

// aboutProfile adds the name of the argument to an error that only the instance profile can have
// caused.
func aboutProfile(err error) error {
	if denied := (*aws.DeniedError)(nil); !aws.UnknownProfile(err) && (!errors.As(err, &denied) || denied.Action != "iam:PassRole") {
		return err
	}
	return &invalid.Field{Field: fieldProfile, Problem: "Unusable instance profile", Err: err}
}

// profileBudget is how long an instance's profile may take to change: usually seconds.
const profileBudget = 2 * time.Minute

// setProfile gives an instance the profile with a name, or none if the name is empty. EC2 replaces
// the profile of a running instance only. That of a stopped one is taken away first:
// https://github.com/hashicorp/terraform-provider-aws/issues/8262
func setProfile(ctx context.Context, c *aws.Client, instance, name string) error {
	ctx, cancel := patience.Within(ctx, profileBudget)
	defer cancel()
	change := profileChange{client: c, instance: instance, name: name}
	what := "take away the instance profile"
	if name != "" {
		what = "give it the instance profile " + name
	}
	return aws.Poll(ctx, what, change.step)
}

// profileChange changes the profile of one instance, step by step.
type profileChange struct {
	client         *aws.Client
	instance, name string
	tried          string // the association that the last step was to end
	failed         error  // what EC2 said to that
}

// step looks at the instance's associations and does the next step. done says that nothing is left to
// do.
func (p *profileChange) step(ctx context.Context) (done bool, seen string, err error) {
	all, err := aws.All(ctx, ec2.NewDescribeIamInstanceProfileAssociationsPaginator(p.client.EC2, &ec2.DescribeIamInstanceProfileAssociationsInput{
		Filters: []types.Filter{aws.Filter("instance-id", p.instance)},
	}), func(p *ec2.DescribeIamInstanceProfileAssociationsOutput) []types.IamInstanceProfileAssociation {
		return p.IamInstanceProfileAssociations
	})
	if err != nil {
		return false, "", err
	}
	var live *types.IamInstanceProfileAssociation
	for n, a := range all {
		if a.State == types.IamInstanceProfileAssociationStateAssociating || a.State == types.IamInstanceProfileAssociationStateAssociated {
			live = &all[n]
		}
	}
	switch {
	case live == nil && len(all) > 0:
		return false, "another profile is being taken away", nil
	case live == nil && p.name == "":
		// The list may be older than what says that the instance has one.
		i, err := p.client.Instance(ctx, p.instance, p.client.RetryInDoubt())
		return profileIn(i) == "", profileIn(i), err
	case live == nil:
		return false, "none", p.associate(ctx)
	case live.IamInstanceProfile != nil && profileOf(sdk.ToString(live.IamInstanceProfile.Arn)) == p.name:
		return live.State == types.IamInstanceProfileAssociationStateAssociated, string(live.State), nil
	}
	id := sdk.ToString(live.AssociationId)
	if p.failed != nil && p.tried == id {
		return false, "", p.failed // it was no race: the association is still there
	}
	p.tried = id
	err = p.end(ctx, id)
	if aws.IsCode(err, "UnauthorizedOperation") { // also of an association that is gone
		p.failed, err = err, nil
	}
	return false, "another profile", later(err)
}

// later drops an error that says that an association or the instance is just changing. The next step
// looks again.
func later(err error) error {
	return aws.Ignore(err, "IncorrectState", "IncorrectInstanceState", "InvalidAssociationID.NotFound")
}

func (p *profileChange) associate(ctx context.Context) error {
	_, err := p.client.EC2.AssociateIamInstanceProfile(ctx, &ec2.AssociateIamInstanceProfileInput{
		InstanceId: &p.instance, IamInstanceProfile: profileSpec(p.name),
	}, p.client.RetryUntilKnown())
	if aws.IsCode(err, "IncorrectInstanceState") { // pending, stopping, or on its way to its end
		if _, gone := p.client.Instance(ctx, p.instance); gone != nil {
			return gone
		}
	}
	return later(aboutProfile(err))
}

// end ends an association: by the wanted one if the instance runs.
func (p *profileChange) end(ctx context.Context, association string) error {
	i, err := p.client.Instance(ctx, p.instance, p.client.RetryInDoubt())
	if err != nil {
		return err
	}
	if p.name != "" && aws.StateOf(i) == types.InstanceStateNameRunning {
		_, err = p.client.EC2.ReplaceIamInstanceProfileAssociation(ctx, &ec2.ReplaceIamInstanceProfileAssociationInput{
			AssociationId: &association, IamInstanceProfile: profileSpec(p.name),
		}, p.client.RetryUntilKnown())
		return aboutProfile(err)
	}
	_, err = p.client.EC2.DisassociateIamInstanceProfile(ctx, &ec2.DisassociateIamInstanceProfileInput{AssociationId: &association})
	return err
}
