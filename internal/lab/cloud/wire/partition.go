package wire

import "strings"

// Partition returns the partition of a region, which ARNs begin with after "arn:".
// https://docs.aws.amazon.com/whitepapers/latest/aws-fault-isolation-boundaries/partitions.html
func Partition(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "aws-cn"
	case strings.HasPrefix(region, "us-gov-"):
		return "aws-us-gov"
	}
	return "aws"
}

// Domain returns the domain of the services and of the public names in a region.
func Domain(region string) string {
	if Partition(region) == "aws-cn" {
		return "amazonaws.com.cn"
	}
	return "amazonaws.com"
}

// GlobalRegion returns the region that requests to a partition's IAM are signed for.
// https://docs.aws.amazon.com/general/latest/gr/iam-service.html
func GlobalRegion(region string) string {
	return map[string]string{"aws": "us-east-1", "aws-cn": "cn-north-1", "aws-us-gov": "us-gov-west-1"}[Partition(region)]
}
