package aws

import (
	"errors"
	"regexp"
	"strings"

	"github.com/aws/smithy-go"
)

// deniedWords are those of AWS' messages. Services differ in what they leave out.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot_access-denied.html
var deniedWords = regexp.MustCompile(`User: (\S+) is not authorized to perform: ([a-zA-Z0-9-]+:[a-zA-Z]+)(?: on resource: (\S+))?(?: (because|with an explicit deny) ([^.\n]+))?`)

// encodedMessage is what EC2 adds for those who may decode it: a thousand characters and more.
var encodedMessage = regexp.MustCompile(`\s*Encoded authorization failure message: \S+`)

// encodedIn returns what EC2 says of a missing permission in a form for sts:DecodeAuthorizationMessage; empty if it says nothing.
func encodedIn(err error) string {
	_, encoded, _ := strings.Cut(encodedMessage.FindString(err.Error()), ": ")
	return encoded
}

// Says reports whether AWS has answered with a code and a message that has the words. For what has no code of its own.
func Says(err error, code string, words *regexp.Regexp) bool {
	var api smithy.APIError
	return IsCode(err, code) && errors.As(err, &api) && words.MatchString(api.ErrorMessage())
}

// unknownProfileWords are those about an instance profile that EC2 does not know, or whose role it
// does not know. It has no code for that.
// https://github.com/hashicorp/terraform-provider-aws/issues/838
var unknownProfileWords = regexp.MustCompile(`Invalid IAM Instance Profile|has no associated IAM Roles`)

// UnknownProfile reports whether EC2 does not know an instance profile, perhaps only not yet.
func UnknownProfile(err error) bool {
	return Says(err, "InvalidParameterValue", unknownProfileWords)
}

// notOnFreePlanWords are those about an instance type that accounts of the free plan may not have. There is no code for that.
var notOnFreePlanWords = regexp.MustCompile(`not eligible for Free Tier`)

// notOnFreePlan reports whether EC2 refuses an instance type because the account is on AWS's free plan.
func notOnFreePlan(err error) bool {
	return Says(err, "InvalidParameterCombination", notOnFreePlanWords)
}

// unknownAttachmentWords are those about an internet gateway that is, as far as a route table knows, not attached
// to its VPC. There is no code for that.
var unknownAttachmentWords = regexp.MustCompile(`network gateway \S+ belong to different networks`)

// unknownAttachment reports whether EC2 refuses a route because it does not know the attachment of its internet
// gateway, perhaps only not yet.
func unknownAttachment(err error) bool {
	return Says(err, "InvalidParameterValue", unknownAttachmentWords)
}

// heldWords are those about a resource that another service of AWS has, such as the Elastic IP of a NAT gateway. There is
// no code for that: wrong credentials have the same one.
// https://github.com/kubernetes/kops/issues/938
var heldWords = regexp.MustCompile(`do not have permission to access the specified resource`)

// heldByService reports whether another service of AWS has a resource, perhaps for some seconds more.
func heldByService(err error) bool {
	return Says(err, "AuthFailure", heldWords)
}

// readDenied reads what AWS says only in words about a missing permission. What it does not
// recognise is in said, without an encoded message.
func readDenied(err error) *DeniedError {
	if found := deniedWords.FindStringSubmatch(err.Error()); found != nil {
		denied := &DeniedError{Principal: found[1], Action: found[2], Resource: found[3], err: err}
		if denied.explicit = found[4] == "with an explicit deny"; found[4] != "" {
			denied.Reason = found[4] + " " + found[5]
		}
		return denied
	}
	denied := &DeniedError{err: err}
	var api smithy.APIError
	if errors.As(err, &api) {
		denied.said = encodedMessage.ReplaceAllString(api.ErrorMessage(), "")
	}
	return denied
}
