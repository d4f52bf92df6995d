package cloud

import (
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/metadata"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// PutInstanceProfile makes an instance profile with a path and a role, or gives the role to the one that exists.
// A fault of kind "eventual" hides a new one from EC2.
func (a *Account) PutInstanceProfile(name, path, role string) (iam.Profile, error) {
	p, made, err := a.identities.PutProfile(name, path, role)
	if err == nil && made {
		a.madeProfile(p)
	}
	return p, err
}

func (a *Account) madeProfile(p iam.Profile) {
	a.faults.Created("CreateInstanceProfile", []string{p.ARN}, a.cfg.Clock.Now())
}

// profile is what EC2 asks of IAM.
func (a *Account) profile(nameOrARN string) (ec2.Profile, bool) {
	p, ok := a.identities.ProfileOf(nameOrARN)
	if !ok || a.faults.Hidden(p.ARN, a.cfg.Clock.Now()) {
		return ec2.Profile{}, false
	}
	return ec2.Profile{ARN: p.ARN, ID: p.ID}, true
}

// instances are the account's instances, with the roles that IAM and STS give them.
type instances struct {
	*ec2.Compute
	account *Account
}

// Role implements metadata.Source.
func (i instances) Role(of metadata.Instance) (metadata.Role, error) {
	p, ok := i.account.identities.ProfileOf(of.Profile.ARN)
	if !ok || p.ID != of.Profile.ID {
		return metadata.Role{}, nil
	}
	r := metadata.Role{Name: p.Role}
	r.Trusted, _ = i.account.identities.Trusts(i.account.identities.RoleIn(of.Profile.ARN), iam.Assumption{Action: "sts:AssumeRole", Caller: iam.EC2(i.account.cfg.Region)})
	if !r.Trusted {
		return r, nil
	}
	creds, issued, err := i.account.tokens.InstanceSession(p.Role, of.ID)
	if err != nil {
		return r, err
	}
	r.AccessKeyID, r.SecretAccessKey, r.Token = creds.AccessKeyID, creds.SecretAccessKey, creds.SessionToken
	r.Issued, r.Expires = issued, creds.Expires
	return r, nil
}

// delivered returns the condition keys of requests with the credentials of an instance, none for
// other credentials.
// https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html
func (a *Account) delivered(accessKeyID string) map[string][]string {
	instance := a.tokens.Instance(accessKeyID)
	if instance == "" {
		return nil
	}
	return map[string][]string{
		"ec2:SourceInstanceARN": {"arn:" + wire.Partition(a.cfg.Region) + ":ec2:" + a.cfg.Region + ":" + a.cfg.AccountID + ":instance/" + instance},
		"ec2:RoleDelivery":      {"2.0"}, // by version 2 of the metadata service
	}
}
