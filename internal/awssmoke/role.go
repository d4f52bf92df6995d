package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	policies "github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/iam"
)

// documented are the policies of examples/iam that a role of a trial has: who has them may make and destroy clusters.
var documented = []string{"everyday.json", "destroy.json"}

// role is an IAM role that a trial makes, with the documented policies and no others. The provider assumes it.
type role struct {
	api       *iam.Client
	begun     bool // it may exist
	arn       string
	documents map[string]string // by name of the file
}

// believed is how long IAM may take until a new role can be assumed, and its policies count.
var believed = time.Minute

func (t *trial) readPolicies() error {
	t.role.documents = map[string]string{}
	for _, name := range documented {
		text, err := os.ReadFile(filepath.Join(t.root, "examples", "iam", name))
		if err != nil {
			return err
		}
		t.role.documents[name] = string(text)
	}
	return nil
}

// makeRole makes the role, which trusts the caller alone, and waits until it can be assumed and its policies count.
func (t *trial) makeRole(ctx context.Context) error {
	if err := t.readPolicies(); err != nil {
		return err
	}
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return err
	}
	t.role.api, t.role.begun = iam.NewFromConfig(cfg), true
	if err := t.noteByHand(); err != nil {
		return err
	}
	trust, err := trusting(t.account.arn)
	if err != nil {
		return err
	}
	_, err = t.role.api.CreateRole(ctx, &iam.CreateRoleInput{RoleName: &t.name, AssumeRolePolicyDocument: &trust, Tags: []types.Tag{{Key: sdk.String(tagTrial), Value: &t.name}}})
	if err != nil && !infraaws.IsCode(err, "EntityAlreadyExists") { // the answer to an earlier attempt was lost
		return fmt.Errorf("this trial needs a role with the documented policies; -once leaves it out: %w", err)
	}
	made, err := t.role.api.GetRole(ctx, &iam.GetRoleInput{RoleName: &t.name})
	if err != nil {
		return err
	}
	t.role.arn = sdk.ToString(made.Role.Arn)
	t.redact.known("arn", t.role.arn)
	for name, document := range t.role.documents {
		if _, err := t.role.api.PutRolePolicy(ctx, &iam.PutRolePolicyInput{RoleName: &t.name, PolicyName: sdk.String(name), PolicyDocument: &document}); err != nil {
			return err
		}
	}
	as, err := infraaws.New(ctx, infraaws.Config{AssumeRole: &infraaws.AssumeRole{RoleARN: t.role.arn, SessionName: t.name}})
	if err != nil {
		return err
	}
	return eventually(ctx, believed, func(ctx context.Context) error {
		_, err := as.EC2.DescribeVpcs(ctx, &ec2.DescribeVpcsInput{}) // everyday.json allows it
		return err
	})
}

// trusting returns the trust policy of a role that only a caller may assume: a user, or any session of the caller's role, since
// each process has a session of its own. The role's path is not in the ARN of its sessions.
func trusting(caller string) (string, error) {
	statement := map[string]any{"Effect": "Allow", "Principal": map[string]string{"AWS": caller}, "Action": "sts:AssumeRole"}
	if parts := strings.SplitN(caller, ":", 6); len(parts) == 6 && strings.HasPrefix(parts[5], "assumed-role/") {
		account := parts[0] + ":" + parts[1] + ":iam::" + parts[4] + ":"
		name := strings.Split(parts[5], "/")[1]
		statement["Principal"] = map[string]string{"AWS": account + "root"}
		statement["Condition"] = map[string]any{"ArnLike": map[string][]string{"aws:PrincipalArn": {account + "role/" + name, account + "role/*/" + name}}}
	}
	document, err := json.Marshal(map[string]any{"Version": "2012-10-17", "Statement": []any{statement}})
	return string(document), err
}

// deleteRole deletes what makeRole has made, also if it does not know what that is.
func (t *trial) deleteRole(ctx context.Context) error {
	return eventually(ctx, believed, func(ctx context.Context) error {
		for name := range t.role.documents {
			_, err := t.role.api.DeleteRolePolicy(ctx, &iam.DeleteRolePolicyInput{RoleName: &t.name, PolicyName: sdk.String(name)})
			if err != nil && !infraaws.IsCode(err, "NoSuchEntity") {
				return err
			}
		}
		_, err := t.role.api.DeleteRole(ctx, &iam.DeleteRoleInput{RoleName: &t.name})
		return infraaws.Ignore(err, "NoSuchEntity")
	})
}

// denial is a call that the role's policies do not allow.
type denial struct {
	Action   string // "ec2:RunInstances"
	Resource string // its kind, such as "instance"; empty if it is not known
	Why      []string
}

// denials says of each call of the role that was refused for want of a permission what the policies lack. What EC2 says of a
// request is decoded if the caller has sts:DecodeAuthorizationMessage. Otherwise the conditions of the request are not known.
func (t *trial) denials(ctx context.Context, refused []infraaws.Refusal) ([]denial, error) {
	var has []policies.Policy
	for _, name := range documented {
		p, err := policies.Parse([]byte(t.role.documents[name]))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		has = append(has, p)
	}
	var out []denial
	seen := map[string]bool{}
	for _, r := range refused {
		if r.Service == "STS" || !slices.Contains([]string{"UnauthorizedOperation", "AccessDenied", "AccessDeniedException"}, r.Code) {
			continue // the caller asks STS, not the role
		}
		d, explicit := t.decode(ctx, r)
		one := denial{Action: d.Action, Resource: kindOf(d.Resource), Why: policies.Lacking(has, d)}
		if explicit {
			one.Why = []string{"a statement of another policy denies it: these policies deny nothing. It may be a service control policy"}
		}
		if key := fmt.Sprint(one); !seen[key] {
			seen[key] = true
			out = append(out, one)
		}
	}
	return out, nil
}

// prefixes are what IAM calls services.
var prefixes = map[string]string{"EC2": "ec2", "SSM": "ssm", "S3": "s3", "Elastic Load Balancing v2": "elasticloadbalancing"}

// decode returns what a refused call needed a permission for, and whether a statement denies it.
func (t *trial) decode(ctx context.Context, r infraaws.Refusal) (d policies.Demand, explicit bool) {
	d = policies.Demand{Action: prefixes[r.Service] + ":" + r.Action}
	if r.Encoded == "" {
		return d, false
	}
	out, err := t.account.client.STS.DecodeAuthorizationMessage(ctx, &sts.DecodeAuthorizationMessageInput{EncodedMessage: &r.Encoded})
	if err != nil {
		return d, false
	}
	// https://docs.aws.amazon.com/STS/latest/APIReference/API_DecodeAuthorizationMessage.html
	type list[T any] struct {
		Items []T `json:"items"`
	}
	var said struct {
		ExplicitDeny bool `json:"explicitDeny"`
		Context      struct {
			Action     string `json:"action"`
			Resource   string `json:"resource"`
			Conditions list[struct {
				Key    string `json:"key"`
				Values list[struct {
					Value string `json:"value"`
				}] `json:"values"`
			}] `json:"conditions"`
		} `json:"context"`
	}
	if json.Unmarshal([]byte(sdk.ToString(out.DecodedMessage)), &said) != nil || said.Context.Action == "" {
		return d, false
	}
	d = policies.Demand{Action: said.Context.Action, Resource: said.Context.Resource, Context: map[string][]string{}}
	for _, c := range said.Context.Conditions.Items {
		for _, v := range c.Values.Items {
			d.Context[c.Key] = append(d.Context[c.Key], v.Value)
		}
	}
	return d, said.ExplicitDeny
}

// kindOf returns the kind of a resource: "instance" of arn:aws:ec2:eu-central-1:123456789012:instance/*.
func kindOf(arn string) string {
	parts := strings.SplitN(arn, ":", 6)
	if len(parts) < 6 {
		return ""
	}
	kind, _, _ := strings.Cut(parts[5], "/")
	return kind
}

// again makes the trial once more, with one controller and one worker, by a role.
func (t *trial) again(trying, destroying context.Context) error {
	o := t.options
	o.yes, o.ebs = true, false
	second, err := newTrial(trying, o, t.in, t.out)
	if err != nil {
		return err
	}
	defer second.close()
	second.compile, second.role = t.compile, &role{}
	_, _ = fmt.Fprintf(t.out, "\nOnce more, as %s: a small cluster, by a role with %s of examples/iam and no other rights.\n", second.name, strings.Join(documented, " and "))
	return second.run(trying, destroying)
}
