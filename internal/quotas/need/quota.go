package need

import "regexp"

// Quota is a limit of an account in a region.
type Quota struct {
	Name          string
	Service, Code string  // of Service Quotas; no code where AWS does not publish one
	Default       float64 // of a new account
}

// Kind is a kind of thing that a quota limits.
type Kind int

// The kinds. GP3 is counted in GiB, everything else in pieces.
const (
	VCPUs Kind = iota
	SpotVCPUs
	VPCs
	InternetGateways
	Addresses
	NATGateways
	ConnectEndpoints
	SecurityGroups
	Interfaces
	LoadBalancers
	TargetGroups
	GP3
	Routes
	Parameters
)

// Quotas are the quotas by kind.
// https://docs.aws.amazon.com/vpc/latest/userguide/amazon-vpc-limits.html
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-resource-limits.html
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/eice-quotas.html
// https://docs.aws.amazon.com/elasticloadbalancing/latest/network/load-balancer-limits.html
// https://docs.aws.amazon.com/general/latest/gr/ssm.html
var Quotas = []Quota{
	VCPUs:            {"vCPUs of running On-Demand Standard instances", "ec2", "L-1216C47A", 5},
	SpotVCPUs:        {"vCPUs of running Standard Spot instances", "ec2", "L-34B43A08", 5},
	VPCs:             {"VPCs", "vpc", "L-F678F1CE", 5},
	InternetGateways: {"internet gateways", "vpc", "L-A4707A72", 5},
	Addresses:        {"Elastic IPs", "ec2", "L-0263D0A3", 5},
	NATGateways:      {"NAT gateways in one availability zone", "vpc", "L-FE5A380F", 5},
	ConnectEndpoints: {"EC2 Instance Connect Endpoints", "ec2", "", 5},
	SecurityGroups:   {"security groups", "vpc", "L-E79EC296", 2500},
	Interfaces:       {"network interfaces", "vpc", "L-DF5E4CA3", 5000},
	LoadBalancers:    {"Network Load Balancers", "elasticloadbalancing", "L-69A177A2", 50},
	TargetGroups:     {"target groups", "elasticloadbalancing", "L-B22855CB", 3000},
	GP3:              {"TiB of gp3 volumes", "ebs", "L-7A658B76", 50},
	Routes:           {"routes of one route table", "vpc", "L-93826ACB", 500},
	Parameters:       {"standard parameters of Systems Manager", "ssm", "", 10000},
}

// standard matches the types of the Standard families. Types of other families, such as trn1 and mac2, have quotas of their own.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-on-demand-instances.html
var standard = regexp.MustCompile(`^(a|c|d|h|i|im|is|m|r|t|z)[0-9]`)

// Standard reports whether the quotas of Standard instances limit an instance type.
func Standard(instanceType string) bool { return standard.MatchString(instanceType) }
