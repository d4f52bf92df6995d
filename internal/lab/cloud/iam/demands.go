package iam

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Call is a request as authorization sees it.
type Call struct {
	Service string     // "ec2", "ssm" or "sts"
	Action  string     // "RunInstances"
	Form    url.Values // of EC2 and STS
	Body    []byte     // of SSM
}

// Account is what authorization asks about the account.
type Account struct {
	ID, Region string
	// Resource returns the tags of an EC2 resource, and the id that an association's id stands for.
	// ok is false if it does not exist.
	Resource func(id string) (of string, tags map[string]string, ok bool)
	// ParameterTags returns the tags of a parameter, and whether it is one of AWS' public ones.
	ParameterTags func(name string) (tags map[string]string, public bool)
}

// Demands returns what a call needs. ok is false for an action that nobody has described yet; it
// then needs the permission of its own name on every resource.
func (a Account) Demands(c Call) (demands []Demand, ok bool) {
	switch c.Service {
	case "ssm":
		demands, ok = a.ssm(c)
	case "sts":
		demands, ok = a.sts(c)
	default:
		demands, ok = a.ec2(c)
	}
	if !ok {
		demands = []Demand{{Action: c.Service + ":" + c.Action, Resource: "*"}}
	}
	for n := range demands {
		if demands[n].Context == nil {
			demands[n].Context = map[string][]string{}
		}
		demands[n].Context["aws:RequestedRegion"] = []string{a.Region}
	}
	return demands, ok
}

// described is what an EC2 action demands: its own permission on the resources that its parameters
// name, and on those that it makes.
type described struct {
	on    []string // parameters, also of lists and of network interfaces
	makes []string // resource types
}

// ec2Actions are EC2's actions but the Describe ones, which know no resources.
// https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html
var ec2Actions = map[string]described{
	"AllocateAddress":                            {makes: []string{"elastic-ip"}},
	"AssociateAddress":                           {on: []string{"AllocationId", "InstanceId", "NetworkInterfaceId"}},
	"AssociateRouteTable":                        {on: []string{"RouteTableId", "SubnetId"}},
	"AttachInternetGateway":                      {on: []string{"InternetGatewayId", "VpcId"}},
	"AttachVolume":                               {on: []string{"VolumeId", "InstanceId"}},
	"AuthorizeSecurityGroupEgress":               {on: []string{"GroupId"}, makes: []string{"security-group-rule"}},
	"AuthorizeSecurityGroupIngress":              {on: []string{"GroupId"}, makes: []string{"security-group-rule"}},
	"CreateInternetGateway":                      {makes: []string{"internet-gateway"}},
	"CreateKeyPair":                              {makes: []string{"key-pair"}},
	"CreateRoute":                                {on: []string{"RouteTableId"}},
	"CreateRouteTable":                           {on: []string{"VpcId"}, makes: []string{"route-table"}},
	"CreateSecurityGroup":                        {on: []string{"VpcId"}, makes: []string{"security-group"}},
	"CreateSubnet":                               {on: []string{"VpcId"}, makes: []string{"subnet"}},
	"CreateTags":                                 {on: []string{"ResourceId"}},
	"CreateVolume":                               {makes: []string{"volume"}},
	"CreateVpc":                                  {makes: []string{"vpc"}},
	"DeleteInternetGateway":                      {on: []string{"InternetGatewayId"}},
	"DeleteKeyPair":                              {on: []string{"KeyPairId"}},
	"DeleteNetworkInterface":                     {on: []string{"NetworkInterfaceId"}},
	"DeleteRoute":                                {on: []string{"RouteTableId"}},
	"DeleteRouteTable":                           {on: []string{"RouteTableId"}},
	"DeleteSecurityGroup":                        {on: []string{"GroupId"}},
	"DeleteSubnet":                               {on: []string{"SubnetId"}},
	"DeleteTags":                                 {on: []string{"ResourceId"}},
	"DeleteVolume":                               {on: []string{"VolumeId"}},
	"DeleteVpc":                                  {on: []string{"VpcId"}},
	"DetachInternetGateway":                      {on: []string{"InternetGatewayId", "VpcId"}},
	"DetachVolume":                               {on: []string{"VolumeId", "InstanceId"}},
	"DisassociateAddress":                        {on: []string{"AssociationId"}},
	"DisassociateRouteTable":                     {on: []string{"AssociationId"}},
	"GetConsoleOutput":                           {on: []string{"InstanceId"}},
	"ImportKeyPair":                              {makes: []string{"key-pair"}},
	"ModifyInstanceAttribute":                    {on: []string{"InstanceId", "GroupId"}},
	"ModifyInstanceMetadataOptions":              {on: []string{"InstanceId"}},
	"ModifyNetworkInterfaceAttribute":            {on: []string{"NetworkInterfaceId", "SecurityGroupId"}},
	"ModifySecurityGroupRules":                   {on: []string{"GroupId"}},
	"ModifySubnetAttribute":                      {on: []string{"SubnetId"}},
	"ModifyVolume":                               {on: []string{"VolumeId"}},
	"ModifyVpcAttribute":                         {on: []string{"VpcId"}},
	"MonitorInstances":                           {on: []string{"InstanceId"}},
	"RebootInstances":                            {on: []string{"InstanceId"}},
	"ReleaseAddress":                             {on: []string{"AllocationId"}},
	"ReplaceRoute":                               {on: []string{"RouteTableId"}},
	"ReplaceRouteTableAssociation":               {on: []string{"RouteTableId", "AssociationId"}},
	"RevokeSecurityGroupEgress":                  {on: []string{"GroupId"}},
	"RevokeSecurityGroupIngress":                 {on: []string{"GroupId"}},
	"RunInstances":                               {on: []string{"ImageId", "SubnetId", "SecurityGroupId"}, makes: []string{"instance", "network-interface", "volume"}},
	"StartInstances":                             {on: []string{"InstanceId"}},
	"StopInstances":                              {on: []string{"InstanceId"}},
	"TerminateInstances":                         {on: []string{"InstanceId"}},
	"UnmonitorInstances":                         {on: []string{"InstanceId"}},
	"UpdateSecurityGroupRuleDescriptionsEgress":  {on: []string{"GroupId"}},
	"UpdateSecurityGroupRuleDescriptionsIngress": {on: []string{"GroupId"}},
}

// ec2Types has the type of an EC2 resource in its ARN, by the prefix of its id.
var ec2Types = map[string]string{
	"acl": "network-acl", "ami": "image", "dopt": "dhcp-options", "eipalloc": "elastic-ip", "eni": "network-interface", "i": "instance",
	"igw": "internet-gateway", "key": "key-pair", "rtb": "route-table", "sg": "security-group", "sgr": "security-group-rule",
	"subnet": "subnet", "vol": "volume", "vpc": "vpc",
}

func (a Account) ec2(c Call) ([]Demand, bool) {
	action := "ec2:" + c.Action
	if strings.HasPrefix(c.Action, "Describe") {
		return []Demand{{Action: action, Resource: "*"}}, true
	}
	d, ok := ec2Actions[c.Action]
	if !ok {
		return nil, false
	}
	var out []Demand
	given := requestTags(c.Form)
	for _, id := range ids(c.Form, d.on) {
		of, tags, exists := a.Resource(id)
		if !exists {
			continue // the action itself says so
		}
		demand := Demand{Action: action, Resource: a.ec2ARN(of), Context: resourceTags(tags)}
		if c.Action == "CreateTags" || c.Action == "DeleteTags" {
			maps.Copy(demand.Context, tagContext(given[""]))
		}
		out = append(out, demand)
	}
	for _, made := range d.makes {
		if made == "security-group-rule" && len(given[made]) == 0 {
			continue // asked for only if the rules get tags
		}
		arn := "arn:aws:ec2:" + a.Region + ":" + a.ID + ":" + made + "/*"
		out = append(out, Demand{Action: action, Resource: arn, Context: tagContext(given[made])})
		if len(given[made]) > 0 {
			context := tagContext(given[made])
			context["ec2:CreateAction"] = []string{c.Action}
			out = append(out, Demand{Action: "ec2:CreateTags", Resource: arn, Context: context})
		}
	}
	return out, true
}

func (a Account) ec2ARN(id string) string {
	prefix, _, _ := strings.Cut(id, "-")
	owner := a.ID
	if prefix == "ami" {
		owner = "" // images may be anybody's
	}
	return "arn:aws:ec2:" + a.Region + ":" + owner + ":" + ec2Types[prefix] + "/" + id
}

// ids returns the ids that the parameters hold, in the order of the parameters.
func ids(form url.Values, parameters []string) []string {
	var out []string
	for _, p := range parameters {
		for _, key := range slices.Sorted(maps.Keys(form)) {
			parts := strings.Split(key, ".")
			inInterface := len(parts) > 2 && parts[0] == "NetworkInterface" && parts[2] == p
			if id := form.Get(key); (parts[0] == p && len(parts) < 3 || inInterface) && id != "" && !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	}
	return out
}

// requestTags returns the tags of a request by the type of the resource that gets them; those of
// CreateTags and DeleteTags under the empty type.
func requestTags(form url.Values) map[string]map[string]string {
	out := map[string]map[string]string{}
	add := func(kind, prefix string) {
		for key := range form {
			if rest, ok := strings.CutPrefix(key, prefix+"Tag."); ok && strings.HasSuffix(rest, ".Key") {
				if out[kind] == nil {
					out[kind] = map[string]string{}
				}
				out[kind][form.Get(key)] = form.Get(strings.TrimSuffix(key, "Key") + "Value")
			}
		}
	}
	add("", "")
	for key := range form {
		if prefix, ok := strings.CutSuffix(key, ".ResourceType"); ok && strings.HasPrefix(prefix, "TagSpecification.") {
			add(form.Get(key), prefix+".")
		}
	}
	return out
}

func tagContext(tags map[string]string) map[string][]string {
	out := map[string][]string{}
	for k, v := range tags {
		out["aws:RequestTag/"+k] = []string{v}
	}
	if len(tags) > 0 {
		out["aws:TagKeys"] = slices.Sorted(maps.Keys(tags))
	}
	return out
}

func resourceTags(tags map[string]string) map[string][]string {
	out := map[string][]string{}
	for k, v := range tags {
		out["aws:ResourceTag/"+k] = []string{v}
		out["ec2:ResourceTag/"+k] = []string{v}
	}
	return out
}

// ssmActions say which field of the input names parameters. A path stands for what is below it.
// https://docs.aws.amazon.com/service-authorization/latest/reference/list_awssystemsmanager.html
var ssmActions = map[string]string{
	"AddTagsToResource": "ResourceId", "DeleteParameter": "Name", "DeleteParameters": "Names", "DescribeParameters": "",
	"GetParameter": "Name", "GetParameterHistory": "Name", "GetParameters": "Names", "GetParametersByPath": "Path",
	"ListTagsForResource": "ResourceId", "PutParameter": "Name", "RemoveTagsFromResource": "ResourceId",
}

func (a Account) ssm(c Call) ([]Demand, bool) {
	field, ok := ssmActions[c.Action]
	if !ok {
		return nil, false
	}
	action := "ssm:" + c.Action
	if field == "" {
		return []Demand{{Action: action, Resource: "*"}}, true
	}
	var in map[string]any
	_ = json.Unmarshal(c.Body, &in) // the action itself refuses what cannot be read
	var out []Demand
	given := map[string]string{}
	list, _ := in["Tags"].([]any)
	for _, t := range list {
		if t, ok := t.(map[string]any); ok {
			key, _ := t["Key"].(string)
			given[key], _ = t["Value"].(string)
		}
	}
	for _, name := range texts(in[field]) {
		tags, public := a.ParameterTags(name)
		owner := a.ID
		if public {
			owner = ""
		}
		name, _, _ = strings.Cut(name, ":") // a version
		arn := "arn:aws:ssm:" + a.Region + ":" + owner + ":parameter/" + strings.TrimPrefix(name, "/")
		context := resourceTags(tags)
		maps.Copy(context, tagContext(given))
		out = append(out, Demand{Action: action, Resource: arn, Context: context})
		if c.Action == "PutParameter" && len(given) > 0 {
			out = append(out, Demand{Action: "ssm:AddTagsToResource", Resource: arn, Context: tagContext(given)})
		}
	}
	return out, true
}

func texts(v any) []string {
	switch v := v.(type) {
	case string:
		return []string{v}
	case []any:
		var out []string
		for _, e := range v {
			out = append(out, texts(e)...)
		}
		return out
	}
	return nil
}

// sts: the identity of the caller and the sessions of its own need no permission. A web identity
// has no policies.
func (a Account) sts(c Call) ([]Demand, bool) {
	switch c.Action {
	case "AssumeRole":
		return []Demand{{Action: "sts:AssumeRole", Resource: c.Form.Get("RoleArn")}}, true
	case "DecodeAuthorizationMessage":
		return []Demand{{Action: "sts:DecodeAuthorizationMessage", Resource: "*"}}, true
	case "GetCallerIdentity", "GetSessionToken", "AssumeRoleWithWebIdentity":
		return nil, true
	}
	return nil, false
}
