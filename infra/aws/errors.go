package aws

import (
	"errors"
	"slices"

	"github.com/aws/smithy-go"
)

// ErrorCode returns the code of an AWS API error ("InvalidVpcID.NotFound"), empty if err is none.
func ErrorCode(err error) string {
	var api smithy.APIError
	if errors.As(err, &api) {
		return api.ErrorCode()
	}
	return ""
}

// IsCode reports whether err is an AWS API error with one of the codes.
func IsCode(err error, codes ...string) bool {
	code := ErrorCode(err)
	return code != "" && slices.Contains(codes, code)
}

// Advice returns one sentence on what a person can do about err, empty if there is nothing to add
// to its text. Codes: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
func Advice(err error) string {
	if UnknownProfile(err) {
		return "The account has no instance profile of this name, or the profile has no role: `aws iam list-instance-profiles` shows them. A profile may have another name than its role."
	}
	if notOnFreePlan(err) {
		return "The account is on AWS's free plan, which has few instance types: `aws ec2 describe-instance-types --filters Name=free-tier-eligible,Values=true` lists them. " +
			"Choose one with 2 GiB of memory or more as instance_type, such as t3.small, or upgrade the account to the paid plan in the console's Billing."
	}
	if heldByService(err) {
		return "Another service of AWS has the resource, such as a NAT gateway or a load balancer, and may keep it for some minutes after its own end: run the same command again later. " +
			"The credentials are not the cause."
	}
	if next := adviceOnCredentials(err); next != "" {
		return next
	}
	switch code := ErrorCode(err); code {
	case "UnauthorizedOperation", "AccessDenied", "AccessDeniedException", forbidden:
		return "The credentials lack this permission. The guide on IAM (docs/guides/iam) has the policies that the provider needs, and says which tags they ask for."
	case "AuthFailure", "InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch", "IncompleteSignature", "InvalidSignatureException":
		return "AWS does not accept the credentials: check them with `aws sts get-caller-identity`, that the clock of this computer is right, and that the account uses this region. " +
			"A region that AWS opened after March 2019, such as eu-south-1, must be enabled for the account first: `aws account enable-region --region-name REGION` enables it, " +
			"which takes minutes. China and GovCloud have accounts and credentials of their own."
	case "OptInRequired":
		return "The account has not enabled this region, or not signed up for the service: `aws account enable-region --region-name REGION` enables a region, which takes minutes."
	case "RequestTimeTooSkewed", "RequestInTheFuture":
		return "The clock of this computer is wrong: AWS takes calls that were signed within five minutes of its own time. Correct the clock; then run apply again, and it continues where it stopped."
	case "InvalidIdentityToken":
		return "AWS does not accept the web identity token: its issuer must be an OpenID Connect provider of the account, and its audience one that the provider there allows."
	case "ExpiredToken", "ExpiredTokenException", "RequestExpired", "InvalidToken", "TokenRefreshRequired":
		return "The credentials have expired, or the clock of this computer is wrong: renew them and run apply again; it continues where it stopped."
	case "InsufficientInstanceCapacity":
		return offered(err) + "AWS has no capacity for one more instance of this type in the availability zone right now: run apply again later, which continues with " +
			"what is missing, or choose another instance_type, a subnet in another zone, or fewer machines."
	case "Unsupported":
		return offered(err) + "Not every availability zone has every instance type: choose another instance_type, or set availability_zones of the network " +
			"to a zone that has it, which replaces the network and every machine."
	case "VcpuLimitExceeded", "InstanceLimitExceeded":
		return "The account's quota for vCPUs of running instances in this region (5 in a new account) is used up: terminate some, or ask for more: " +
			"Service Quotas, Amazon EC2, Running On-Demand Standard instances (L-1216C47A; other instance families have their own), " +
			"such as `aws service-quotas request-service-quota-increase --service-code ec2 --quota-code L-1216C47A --desired-value 32`."
	case "MaxSpotInstanceCountExceeded":
		return "The account's quota for vCPUs of Spot instances in this region (5 in a new account) is used up: terminate some, remove spot, or ask for more in the AWS console: " +
			"Service Quotas, Amazon EC2, All Standard Spot Instance Requests (L-34B43A08; other instance families have their own)."
	case "SpotMaxPriceTooLow":
		return "EC2 has no Spot instances of this type at this price now: raise max_price, or remove it, which means the On-Demand price. `aws ec2 describe-spot-price-history` shows the " +
			"prices."
	case "AuthFailure.ServiceLinkedRoleCreationNotPermitted":
		return "The account's first Spot instance creates the role AWSServiceRoleForEC2Spot, and these credentials do not permit that: allow iam:CreateServiceLinkedRole, as the guide on " +
			"IAM shows, or let an administrator run `aws iam create-service-linked-role --aws-service-name spot.amazonaws.com` once."
	case "AddressLimitExceeded":
		return "The account's quota for Elastic IPs in this region (5 by default) is used up: release one, or ask for more in the AWS console: " +
			"Service Quotas, Amazon EC2, EC2-VPC Elastic IPs (L-0263D0A3)."
	case "VpcLimitExceeded", "InternetGatewayLimitExceeded":
		return "The account's quota for VPCs in this region (5 by default) is used up: delete one, adopt an existing one with vpc_id, or ask for more " +
			"in the AWS console: Service Quotas, Amazon VPC, VPCs per Region (L-F678F1CE)."
	case "RulesPerSecurityGroupLimitExceeded":
		return "A security group holds at most 60 rules by default: write fewer, wider CIDRs, or ask for more in the AWS console: " +
			"Service Quotas, Amazon VPC, Inbound or outbound rules per security group (L-0EA8095F)."
	case "SecurityGroupsPerInterfaceLimitExceeded":
		return "AWS allows five security groups for a machine by default, and its network gives it two: remove others from the machine, or ask for more in the AWS console: " +
			"Service Quotas, Amazon VPC, Security groups per network interface (L-2AFB9258)."
	case "RouteLimitExceeded":
		return "A route table holds 500 routes by default, and every machine with pods needs one in each route table of the network: remove some, " +
			"or ask for more in the AWS console: Service Quotas, Amazon VPC, Routes per route table (L-93826ACB)."
	case "ServiceQuotaExceededException": // of an EC2 Instance Connect Endpoint that has all the tunnels that it may have
		return "An EC2 Instance Connect Endpoint has at most 20 tunnels at once: others use them. Wait until they have ended, or end them, then run apply again."
	case "VolumeInUse":
		return "Another machine has the volume: stop what uses it there, unmount and detach it, then run apply again."
	case "VolumeLimitExceeded", "MaxIOPSLimitExceeded":
		return "The account's quota for EBS volumes of this type in the region is used up: choose another type or fewer iops, or ask for more in the AWS console: " +
			"Service Quotas, Amazon Elastic Block Store (EBS)."
	case "VolumeTypeNotAvailableInZone":
		return "The availability zone does not have this type of volume: choose another type."
	case "VolumeModificationRateExceeded", "IncorrectModificationState":
		return "EC2 changes a volume again only after the last change has ended, and four times in 24 hours: nothing has been changed; run apply again then."
	case "InvalidIPAddress.InUse", "InvalidNetworkInterface.InUse":
		return "Something else holds this private_ip: choose another, or remove the machine that has it."
	case "DependencyViolation":
		return "Something that this configuration does not manage still uses it: find it by the VPC's id in the EC2 console, remove it, and run destroy again."
	case "InvalidAMIID.NotFound", "InvalidAMIID.Malformed", "InvalidAMIID.Unavailable":
		return "AMI ids differ between regions: choose one of this region, or leave ami out for Debian 13. If it is hidden, allow its owner in the account's Allowed AMIs."
	case "NoSuchBucket":
		return "The provider makes no buckets: make it first, or correct bucket."
	case "PermanentRedirect", "MovedPermanently", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException":
		return "The bucket is in another region: set region to it."
	case "KMS.NotFoundException", "KMS.DisabledException", "KMS.KMSInvalidStateException":
		return "S3 cannot use the KMS key: it must exist in the region of the bucket, and be enabled."
	case "RequestLimitExceeded", "SlowDown", "Throttling", "ThrottlingException":
		return "AWS throttles this account beyond the provider's retries: raise max_retries, lower -parallelism, or run apply again; it continues where it stopped."
	default:
		return ""
	}
}

// Ignore turns errors with one of the codes into nil.
func Ignore(err error, codes ...string) error {
	if IsCode(err, codes...) {
		return nil
	}
	return err
}

// ErrNotFound says that something certainly does not exist: EC2 does not know it or says that it is
// terminated.
var ErrNotFound = errors.New("does not exist")
