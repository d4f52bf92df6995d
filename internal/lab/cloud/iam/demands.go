package iam

import (
	"encoding/json"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// Call is a request as authorization sees it.
type Call struct {
	Service string     // "ec2", "ec2-instance-connect", "ssm", "sts" or "elasticloadbalancing"
	Action  string     // "RunInstances"
	Form    url.Values // of EC2, EC2 Instance Connect, STS and ELB
	Body    []byte     // of SSM
}

// Resource is a resource of EC2.
type Resource struct {
	Type, Name string // as its ARN has them: "vpc" and "vpc-0123"
	Tags       map[string]string
	Keys       map[string]string // further condition keys
}

// Account is what authorization asks about the account.
type Account struct {
	ID, Region string
	// Resources returns the EC2 resources that the value of a parameter names.
	Resources func(parameter, value string) []Resource
	// Defaults returns the values of parameters that name what EC2 takes by default where a call names nothing. given
	// are the values that the call has. Nil stands for no defaults.
	Defaults func(action string, given url.Values) url.Values
	// Profile returns the ARNs of the instance profile with a name or an ARN, and of its role; empty if there is
	// no such profile. A nil Profile stands for no profiles.
	Profile func(nameOrARN string) (profile, role string)
	// ParameterTags returns the tags of a parameter, and whether it is one of AWS' public ones.
	ParameterTags func(name string) (tags map[string]string, public bool)
	// Session returns the condition keys of a request for a session. Nil stands for none.
	Session func(form url.Values) map[string][]string
	// BalancerTags returns the tags of what has an ARN of Elastic Load Balancing. Nil stands for no tags.
	BalancerTags func(arn string) map[string]string
	// Identities are the account's users and roles, and Caller is the name of the user who calls, for IAM.
	Identities *Directory
	Caller     string
}

// arn returns an ARN in the account's partition. An empty region is that of a global service.
func (a Account) arn(service, region, owner, resource string) string {
	return "arn:" + wire.Partition(a.Region) + ":" + service + ":" + region + ":" + owner + ":" + resource
}

// UserName returns the name of the user that an ARN names, empty if it names none.
func UserName(arn string) string {
	if !strings.Contains(arn, ":user/") {
		return ""
	}
	return arn[strings.LastIndex(arn, "/")+1:]
}

// Demands returns what a call needs. ok is false for an action that nobody has described yet; it
// then needs the permission of its own name on every resource.
func (a Account) Demands(c Call) (demands []Demand, ok bool) {
	switch c.Service {
	case "ssm":
		demands, ok = a.ssm(c)
	case "sts":
		demands, ok = a.sts(c)
	case "iam":
		demands, ok = a.iam(c)
		a.Region = wire.GlobalRegion(a.Region)
	case "elasticloadbalancing":
		demands, ok = a.elb(c)
	case "ec2-instance-connect":
		demands, ok = a.connect(c)
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
// name, whether they exist or not, and on those that it makes.
type described struct {
	on    []string // parameters, also of lists and of network interfaces
	makes []string // resource types
}

// ec2Actions are EC2's actions. Describe actions that are not in it know no resources.
// https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html
var ec2Actions = map[string]described{
	"CreateDefaultVpc":                            {},
	"DisableAllowedImagesSettings":                {},
	"DisableEbsEncryptionByDefault":               {},
	"EnableAllowedImagesSettings":                 {},
	"EnableEbsEncryptionByDefault":                {},
	"GetAllowedImagesSettings":                    {},
	"GetEbsDefaultKmsKeyId":                       {},
	"GetEbsEncryptionByDefault":                   {},
	"GetInstanceMetadataDefaults":                 {},
	"ModifyEbsDefaultKmsKeyId":                    {},
	"ModifyInstanceMetadataDefaults":              {},
	"ModifyVpcBlockPublicAccessOptions":           {},
	"ReplaceImageCriteriaInAllowedImagesSettings": {},
	"ResetEbsDefaultKmsKeyId":                     {},
	"AllocateAddress":                             {makes: []string{"elastic-ip"}},
	"AssociateAddress":                            {on: []string{"AllocationId", "PublicIp", "InstanceId", "NetworkInterfaceId"}},
	"AssociateIamInstanceProfile":                 {on: []string{"InstanceId"}},
	"AssociateRouteTable":                         {on: []string{"RouteTableId", "SubnetId"}},
	"AttachInternetGateway":                       {on: []string{"InternetGatewayId", "VpcId"}},
	"AttachVolume":                                {on: []string{"VolumeId", "InstanceId"}},
	"AuthorizeSecurityGroupEgress":                {on: []string{"GroupId"}, makes: []string{"security-group-rule"}},
	"AuthorizeSecurityGroupIngress":               {on: []string{"GroupId"}, makes: []string{"security-group-rule"}},
	"CopyVolumes":                                 {on: []string{"SourceVolumeId"}, makes: []string{"volume"}},
	"CreateImage":                                 {on: []string{"InstanceId"}, makes: []string{"image", "snapshot"}},
	"CreateInstanceConnectEndpoint":               {on: []string{"SubnetId", "SecurityGroupId"}, makes: []string{"instance-connect-endpoint"}},
	"CreateInternetGateway":                       {makes: []string{"internet-gateway"}},
	"CreateKeyPair":                               {makes: []string{"key-pair"}},
	"CreateLaunchTemplate":                        {makes: []string{"launch-template"}},
	"CreateLaunchTemplateVersion":                 {on: []string{"LaunchTemplateId", "LaunchTemplateName"}},
	"CreateNatGateway":                            {on: []string{"SubnetId", "AllocationId"}, makes: []string{"natgateway"}},
	"CreatePlacementGroup":                        {makes: []string{"placement-group"}},
	"CreateRoute":                                 {on: []string{"RouteTableId"}},
	"CreateRouteTable":                            {on: []string{"VpcId"}, makes: []string{"route-table"}},
	"CreateSecurityGroup":                         {on: []string{"VpcId"}, makes: []string{"security-group"}},
	"CreateSnapshot":                              {on: []string{"VolumeId"}, makes: []string{"snapshot"}},
	"CreateSubnet":                                {on: []string{"VpcId"}, makes: []string{"subnet"}},
	"CreateTags":                                  {on: []string{"ResourceId"}},
	"CreateVolume":                                {on: []string{"SnapshotId"}, makes: []string{"volume"}},
	"CreateVpc":                                   {makes: []string{"vpc"}},
	"DeleteInstanceConnectEndpoint":               {on: []string{"InstanceConnectEndpointId"}},
	"DeleteInternetGateway":                       {on: []string{"InternetGatewayId"}},
	"DeleteKeyPair":                               {on: []string{"KeyPairId", "KeyName"}},
	"DeleteLaunchTemplate":                        {on: []string{"LaunchTemplateId", "LaunchTemplateName"}},
	"DeleteNatGateway":                            {on: []string{"NatGatewayId"}},
	"DeleteNetworkInterface":                      {on: []string{"NetworkInterfaceId"}},
	"DeletePlacementGroup":                        {on: []string{"GroupName"}},
	"DeleteRoute":                                 {on: []string{"RouteTableId"}},
	"DeleteRouteTable":                            {on: []string{"RouteTableId"}},
	"DeleteSecurityGroup":                         {on: []string{"GroupId"}},
	"DeleteSnapshot":                              {on: []string{"SnapshotId"}},
	"DeleteSubnet":                                {on: []string{"SubnetId"}},
	"DeleteTags":                                  {on: []string{"ResourceId"}},
	"DeleteVolume":                                {on: []string{"VolumeId"}},
	"DeleteVpc":                                   {on: []string{"VpcId"}},
	"DeregisterImage":                             {on: []string{"ImageId"}},
	"DescribeInstanceAttribute":                   {on: []string{"InstanceId"}},
	"DescribeVpcAttribute":                        {on: []string{"VpcId"}},
	"DetachInternetGateway":                       {on: []string{"InternetGatewayId", "VpcId"}},
	"DetachVolume":                                {on: []string{"VolumeId", "InstanceId"}},
	"DisassociateAddress":                         {on: []string{"AssociationId", "PublicIp"}},
	"DisassociateIamInstanceProfile":              {on: []string{"AssociationId"}},
	"DisassociateRouteTable":                      {on: []string{"AssociationId"}},
	"EnableFastSnapshotRestores":                  {on: []string{"SourceSnapshotId"}},
	"GetConsoleOutput":                            {on: []string{"InstanceId"}},
	"ImportKeyPair":                               {makes: []string{"key-pair"}},
	"ModifyInstanceAttribute":                     {on: []string{"InstanceId", "GroupId"}},
	"ModifyInstanceCreditSpecification":           {on: []string{"InstanceId"}},
	"ModifyInstancePlacement":                     {on: []string{"InstanceId", "GroupName"}},
	"ModifyInstanceMetadataOptions":               {on: []string{"InstanceId"}},
	"ModifyNetworkInterfaceAttribute":             {on: []string{"NetworkInterfaceId", "SecurityGroupId"}},
	"ModifySecurityGroupRules":                    {on: []string{"GroupId"}},
	"ModifySubnetAttribute":                       {on: []string{"SubnetId"}},
	"ModifyVolume":                                {on: []string{"VolumeId"}},
	"ModifyVpcAttribute":                          {on: []string{"VpcId"}},
	"MonitorInstances":                            {on: []string{"InstanceId"}},
	"RebootInstances":                             {on: []string{"InstanceId"}},
	"RegisterImage":                               {on: []string{"SnapshotId"}, makes: []string{"image"}},
	"ReleaseAddress":                              {on: []string{"AllocationId"}},
	"ReplaceIamInstanceProfileAssociation":        {on: []string{"AssociationId"}},
	"ReplaceRoute":                                {on: []string{"RouteTableId"}},
	"ReplaceRouteTableAssociation":                {on: []string{"RouteTableId", "AssociationId"}},
	"RevokeSecurityGroupEgress":                   {on: []string{"GroupId"}},
	"RevokeSecurityGroupIngress":                  {on: []string{"GroupId"}},
	"RunInstances":                                {on: []string{"ImageId", "SnapshotId", "NetworkInterfaceId", "SubnetId", "SecurityGroupId", "KeyName", "GroupName"}, makes: []string{"instance", "network-interface", "volume"}},
	"StartInstances":                              {on: []string{"InstanceId"}},
	"StopInstances":                               {on: []string{"InstanceId"}},
	"TerminateInstances":                          {on: []string{"InstanceId"}},
	"UnmonitorInstances":                          {on: []string{"InstanceId"}},
	"UpdateSecurityGroupRuleDescriptionsEgress":   {on: []string{"GroupId"}},
	"UpdateSecurityGroupRuleDescriptionsIngress":  {on: []string{"GroupId"}},
}

func (a Account) ec2(c Call) ([]Demand, bool) {
	action := "ec2:" + c.Action
	d, ok := ec2Actions[c.Action]
	if !ok {
		return []Demand{{Action: action, Resource: "*"}}, strings.HasPrefix(c.Action, "Describe")
	}
	var out []Demand
	given := requestTags(c.Form)
	uses := a.uses(c, d.on)
	for _, p := range uses {
		for _, r := range a.Resources(p.parameter, p.value) {
			demand := Demand{Action: action, Resource: a.ec2ARN(r.Type, r.Name), Context: resourceContext(r)}
			if c.Action == "CreateTags" || c.Action == "DeleteTags" {
				maps.Copy(demand.Context, tagContext(given[""]))
			}
			if c.Action == "RunInstances" && r.Type == "network-interface" { // AWS documents no tags for it
				demand.Context = map[string][]string{}
			}
			if !slices.ContainsFunc(out, func(d Demand) bool { return d.Resource == demand.Resource }) {
				out = append(out, demand)
			}
		}
	}
	for _, made := range d.makes {
		if made == "security-group-rule" && len(given[made]) == 0 {
			continue // asked for only if the rules get tags
		}
		name := "*"
		if made == "key-pair" {
			name = c.Form.Get("KeyName")
		}
		arn := a.ec2ARN(made, name)
		if made == "network-interface" && c.Action == "RunInstances" && c.Form.Has("NetworkInterface.1.NetworkInterfaceId") {
			continue // it has one
		}
		out = append(out, a.making(c.Form, uses, action, made, arn, given[made])...)
		if len(given[made]) > 0 {
			context := tagContext(given[made])
			context["ec2:CreateAction"] = []string{c.Action}
			out = append(out, Demand{Action: "ec2:CreateTags", Resource: arn, Context: context})
		}
	}
	if len(out) == 0 { // the request names nothing: its permission is asked for nevertheless
		out = []Demand{{Action: action, Resource: a.ec2ARN("*", "*")}}
	}
	if c.Action == "CreateInstanceConnectEndpoint" {
		out = append(out, a.connecting(c.Form)...)
	}
	return append(out, a.passed(c.Form)...), true
}

// making demands that something is made. Each of the volumes of a launch is demanded by itself, if they are given. The network interface
// is demanded for each subnet that EC2 may take.
func (a Account) making(form url.Values, uses []parameter, action, made, arn string, tags map[string]string) []Demand {
	one := Demand{Action: action, Resource: arn, Context: tagContext(tags)}
	set := func(d Demand, key, value string) {
		if value != "" {
			d.Context[key] = []string{value}
		}
	}
	switch made {
	case "instance":
		set(one, "ec2:InstanceType", form.Get("InstanceType"))
		set(one, "ec2:InstanceProfile", a.profileIn(form))
	case "volume":
		set(one, "ec2:VolumeSize", form.Get("Size"))
		set(one, "ec2:VolumeType", form.Get("VolumeType"))
		if from := form.Get("SnapshotId"); from != "" {
			set(one, "ec2:ParentSnapshot", a.ec2ARN("snapshot", from))
		}
		var all []Demand
		for _, key := range slices.Sorted(maps.Keys(form)) {
			if prefix, ok := strings.CutSuffix(key, ".Ebs.VolumeSize"); ok && strings.HasPrefix(key, "BlockDeviceMapping.") {
				d := Demand{Action: action, Resource: arn, Context: tagContext(tags)}
				set(d, "ec2:VolumeSize", form.Get(key))
				set(d, "ec2:VolumeType", form.Get(prefix+".Ebs.VolumeType"))
				all = append(all, d)
			}
		}
		if len(all) > 0 {
			return all
		}
	case "snapshot":
		if of := form.Get("VolumeId"); of != "" {
			set(one, "ec2:ParentVolume", a.ec2ARN("volume", of))
		}
	case "network-interface":
		var all []Demand
		for _, p := range uses {
			if p.parameter != "SubnetId" {
				continue
			}
			for _, r := range a.Resources(p.parameter, p.value) {
				d := Demand{Action: action, Resource: arn, Context: tagContext(tags)}
				set(d, "ec2:Subnet", a.ec2ARN(r.Type, r.Name))
				set(d, "ec2:Vpc", r.Keys["ec2:Vpc"])
				all = append(all, d)
			}
		}
		if len(all) > 0 {
			return all
		}
	}
	return []Demand{one}
}

// profileIn returns the ARN of the instance profile that a request names, empty if it names none.
func (a Account) profileIn(form url.Values) string {
	profile, _ := a.profiled(form)
	return profile
}

func (a Account) profiled(form url.Values) (profile, role string) {
	for _, parameter := range []string{"IamInstanceProfile.Name", "IamInstanceProfile.Arn"} {
		if v := form.Get(parameter); v != "" && a.Profile != nil {
			return a.Profile(v)
		}
	}
	return "", ""
}

// passed demands that the caller may give EC2 the role in the instance profile of a request.
// https://docs.aws.amazon.com/IAM/latest/UserGuide/id_roles_use_passrole.html
func (a Account) passed(form url.Values) []Demand {
	_, role := a.profiled(form)
	if role == "" {
		return nil
	}
	return []Demand{{Action: "iam:PassRole", Resource: role, Context: map[string][]string{"iam:PassedToService": {EC2(a.Region)}}}}
}

// SpotRole returns what a call for Spot instances demands as long as the account lacks EC2's service-linked role for them.
func (a Account) SpotRole(c Call) (Demand, bool) {
	if c.Service != "ec2" || c.Action != "RunInstances" || c.Form.Get("InstanceMarketOptions.MarketType") != "spot" {
		return Demand{}, false
	}
	return Demand{
		Action:   "iam:CreateServiceLinkedRole",
		Resource: a.arn("iam", "", a.ID, "role/aws-service-role/spot.amazonaws.com/AWSServiceRoleForEC2Spot"),
		Context:  map[string][]string{"iam:AWSServiceName": {"spot.amazonaws.com"}, "aws:RequestedRegion": {a.Region}},
	}, true
}

func (a Account) ec2ARN(typ, name string) string {
	owner := a.ID
	if typ == "image" || typ == "snapshot" {
		owner = "" // they may be anybody's
	}
	return a.arn("ec2", a.Region, owner, typ+"/"+name)
}

// parameter is a parameter that names a resource.
type parameter struct{ parameter, value string }

// named returns the parameters that name resources, in the order of names, each value once.
func named(form url.Values, names []string) []parameter {
	var out []parameter
	for _, n := range names {
		for _, key := range slices.Sorted(maps.Keys(form)) {
			parts := strings.Split(key, ".")
			inItem := len(parts) == 4 && parts[0] == "BlockDeviceMapping" && parts[3] == n || len(parts) > 2 && (parts[0] == "NetworkInterface" || parts[0] == "InstanceCreditSpecification") && parts[2] == n ||
				key == "Placement.GroupName" && n == "GroupName"
			p := parameter{n, form.Get(key)}
			if (parts[0] == n && len(parts) < 3 || inItem) && p.value != "" && !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
	}
	return out
}

// uses returns the parameters of a call that name resources, and those that would name what EC2 takes by default.
func (a Account) uses(c Call, names []string) []parameter {
	out := named(c.Form, names)
	if a.Defaults == nil {
		return out
	}
	given := url.Values{"Placement.AvailabilityZone": c.Form["Placement.AvailabilityZone"]}
	for _, p := range out {
		given.Add(p.parameter, p.value)
	}
	taken := a.Defaults(c.Action, given)
	for _, n := range names {
		for _, v := range taken[n] {
			out = append(out, parameter{n, v})
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

func resourceContext(r Resource) map[string][]string {
	out := resourceTags(r.Tags)
	for k, v := range r.Keys {
		out[k] = []string{v}
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
	"GetParameter": "Name", "GetParameters": "Names", "GetParametersByPath": "Path",
	"ListTagsForResource": "ResourceId", "PutParameter": "Name", "RemoveTagsFromResource": "ResourceId",
}

func (a Account) ssm(c Call) ([]Demand, bool) {
	field, ok := ssmActions[c.Action]
	if !ok {
		return nil, false
	}
	action := "ssm:" + c.Action
	if field == "" {
		return []Demand{{Action: action, Resource: a.arn("ssm", a.Region, a.ID, "*")}}, true
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
	context := tagContext(given)
	if keys := texts(in["TagKeys"]); len(keys) > 0 {
		context["aws:TagKeys"] = keys
	}
	for parameter, key := range map[string]string{"Overwrite": "ssm:Overwrite", "Recursive": "ssm:Recursive"} {
		if value, ok := in[parameter].(bool); ok {
			context[key] = []string{strconv.FormatBool(value)}
		}
	}
	for _, name := range texts(in[field]) {
		tags, public := a.ParameterTags(name)
		owner := a.ID
		if public {
			owner = ""
		}
		name, _, _ = strings.Cut(name, ":") // a version
		arn := a.arn("ssm", a.Region, owner, "parameter/"+strings.TrimPrefix(name, "/"))
		demand := Demand{Action: action, Resource: arn, Context: map[string][]string{}}
		if c.Action != "PutParameter" { // AWS evaluates no tags of the parameter then
			demand.Context = resourceTags(tags)
		}
		maps.Copy(demand.Context, context)
		out = append(out, demand)
		if c.Action == "PutParameter" && len(given) > 0 {
			out = append(out, Demand{Action: "ssm:AddTagsToResource", Resource: arn, Context: tagContext(given)})
		}
	}
	if len(out) == 0 { // the request names nothing
		out = []Demand{{Action: action, Resource: a.arn("ssm", a.Region, a.ID, "parameter/")}}
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
		return a.session(c, c.Form.Get("RoleArn")), true
	case "GetFederationToken":
		return a.session(c, a.arn("sts", "", a.ID, "federated-user/"+c.Form.Get("Name"))), true
	case "DecodeAuthorizationMessage":
		return []Demand{{Action: "sts:DecodeAuthorizationMessage", Resource: "*"}}, true
	case "GetCallerIdentity", "GetSessionToken", "AssumeRoleWithWebIdentity":
		return nil, true
	}
	return nil, false
}

// session: tags and a source identity of a session need permissions of their own.
func (a Account) session(c Call, arn string) []Demand {
	actions := []string{c.Action}
	for parameter := range c.Form {
		if strings.HasPrefix(parameter, "Tags.member.") && !slices.Contains(actions, "TagSession") {
			actions = append(actions, "TagSession")
		}
	}
	if c.Form.Get("SourceIdentity") != "" {
		actions = append(actions, "SetSourceIdentity")
	}
	var out []Demand
	for _, action := range actions {
		d := Demand{Action: "sts:" + action, Resource: arn, Context: map[string][]string{}}
		if a.Session != nil {
			maps.Copy(d.Context, a.Session(c.Form))
		}
		out = append(out, d)
	}
	return out
}
