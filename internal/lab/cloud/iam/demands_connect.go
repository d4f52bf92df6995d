package iam

import "net/url"

// connectParameters are the parameters of a tunnel that policies may ask for.
// https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2instanceconnect.html
var connectParameters = []string{"remotePort", "privateIpAddress", "maxTunnelDuration"}

// connect: a tunnel needs the permission on its endpoint.
func (a Account) connect(c Call) ([]Demand, bool) {
	if c.Action != "OpenTunnel" {
		return nil, false
	}
	r := a.Resources("InstanceConnectEndpointId", c.Form.Get("instanceConnectEndpointId"))[0]
	demand := Demand{Action: "ec2-instance-connect:OpenTunnel", Resource: a.ec2ARN(r.Type, r.Name), Context: resourceContext(r)}
	for _, p := range connectParameters {
		if v := c.Form.Get(p); v != "" {
			demand.Context["ec2-instance-connect:"+p] = []string{v}
		}
	}
	return []Demand{demand}, true
}

// connecting is what the creation of an endpoint needs for its interface and for the role that the
// service works with. AWS asks for the role with the first endpoint of an account, this account always.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/permissions-for-ec2-instance-connect-endpoint.html
func (a Account) connecting(form url.Values) []Demand {
	out := []Demand{{Action: "iam:CreateServiceLinkedRole", Context: map[string][]string{"iam:AWSServiceName": {"ec2-instance-connect.amazonaws.com"}},
		Resource: a.arn("iam", "", a.ID, "role/aws-service-role/ec2-instance-connect.amazonaws.com/AWSServiceRoleForEC2InstanceConnect")}}
	for _, p := range named(form, []string{"SubnetId", "SecurityGroupId"}) {
		for _, r := range a.Resources(p.parameter, p.value) {
			out = append(out, Demand{Action: "ec2:CreateNetworkInterface", Resource: a.ec2ARN(r.Type, r.Name), Context: resourceContext(r)})
		}
	}
	return append(out, Demand{Action: "ec2:CreateNetworkInterface", Resource: a.ec2ARN("network-interface", "*")})
}
