package metadata

import (
	"encoding/json"
	"time"
)

// Profile is the instance profile of an instance.
type Profile struct {
	ARN, ID string
	Since   time.Time // when it was associated
}

// Role is what an instance's profile gives it.
type Role struct {
	Name string // empty if the profile does not exist any more
	// Trusted is false if the role's trust policy does not let EC2 assume it. Then there are no
	// credentials.
	Trusted bool

	AccessKeyID, SecretAccessKey, Token string
	Issued, Expires                     time.Time
}

// Codes of the documents about a profile.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_iam-ec2.html
const (
	codeSuccess      = "Success"
	codeNoProfile    = "InstanceProfileNotFound"
	codeUnauthorized = "AssumeRoleUnauthorizedAccess"
)

const (
	iamPath         = "meta-data/iam"
	credentialsPath = iamPath + "/security-credentials/"
	troubleshooting = "Please see documentation at https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_iam-ec2.html"
)

type profileDocument struct {
	Code               string
	Message            string `json:",omitempty"`
	LastUpdated        string
	InstanceProfileArn string `json:",omitempty"`
	InstanceProfileID  string `json:"InstanceProfileId,omitempty"`
}

type credentialsDocument struct {
	Code            string
	Message         string `json:",omitempty"`
	LastUpdated     string
	Type            string `json:",omitempty"`
	AccessKeyID     string `json:"AccessKeyId,omitempty"`
	SecretAccessKey string `json:",omitempty"`
	Token           string `json:",omitempty"`
	Expiration      string `json:",omitempty"`
}

// identityLeaves returns what is below iamPath.
func (i Instance) identityLeaves(r Role) map[string]string {
	info := profileDocument{Code: codeSuccess, LastUpdated: stamp(i.Profile.Since), InstanceProfileArn: i.Profile.ARN, InstanceProfileID: i.Profile.ID}
	if r.Name == "" {
		info.Code, info.Message = codeNoProfile, "Instance Profile "+i.Profile.ARN+" cannot be found. "+troubleshooting
		return map[string]string{iamPath + "/info": document(info)}
	}
	creds := credentialsDocument{
		Code: codeSuccess, LastUpdated: stamp(r.Issued), Type: "AWS-HMAC",
		AccessKeyID: r.AccessKeyID, SecretAccessKey: r.SecretAccessKey, Token: r.Token, Expiration: stamp(r.Expires),
	}
	if !r.Trusted {
		creds = credentialsDocument{Code: codeUnauthorized, Message: "EC2 cannot assume the role " + r.Name + ". " + troubleshooting, LastUpdated: stamp(i.Profile.Since)}
	}
	return map[string]string{iamPath + "/info": document(info), credentialsPath + r.Name: document(creds)}
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

func document(v any) string {
	out, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return "" // texts always marshal
	}
	return string(out)
}
