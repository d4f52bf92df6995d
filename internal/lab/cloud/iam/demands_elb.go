package iam

import (
	"maps"
	"net/url"
	"slices"
	"strings"
)

// elbActions are the actions of Elastic Load Balancing, version 2, other than Describe actions, which know
// no resources.
// https://docs.aws.amazon.com/service-authorization/latest/reference/list_awselasticloadbalancingv2.html
var elbActions = map[string]described{
	"AddTags":                      {on: []string{"ResourceArns.member"}},
	"CreateListener":               {on: []string{"LoadBalancerArn"}, makes: []string{"listener/net"}},
	"CreateLoadBalancer":           {makes: []string{"loadbalancer/net"}},
	"CreateTargetGroup":            {makes: []string{"targetgroup"}},
	"DeleteListener":               {on: []string{"ListenerArn"}},
	"DeleteLoadBalancer":           {on: []string{"LoadBalancerArn"}},
	"DeleteTargetGroup":            {on: []string{"TargetGroupArn"}},
	"DeregisterTargets":            {on: []string{"TargetGroupArn"}},
	"ModifyListener":               {on: []string{"ListenerArn"}},
	"ModifyLoadBalancerAttributes": {on: []string{"LoadBalancerArn"}},
	"ModifyTargetGroup":            {on: []string{"TargetGroupArn"}},
	"ModifyTargetGroupAttributes":  {on: []string{"TargetGroupArn"}},
	"RegisterTargets":              {on: []string{"TargetGroupArn"}},
	"RemoveTags":                   {on: []string{"ResourceArns.member"}},
	"SetSecurityGroups":            {on: []string{"LoadBalancerArn"}},
	"SetSubnets":                   {on: []string{"LoadBalancerArn"}},
}

// elbKeys are condition keys, and the lists of ids that they are about.
var elbKeys = map[string]string{"elasticloadbalancing:SecurityGroup": "SecurityGroups.member", "elasticloadbalancing:Subnet": "Subnets.member"}

// elbMapped returns the subnets in the mappings of a request. That they count as elasticloadbalancing:Subnet is not
// documented.
func elbMapped(form url.Values) []string {
	var out []string
	for _, key := range slices.Sorted(maps.Keys(form)) {
		if strings.HasPrefix(key, "SubnetMappings.member.") && strings.HasSuffix(key, ".SubnetId") {
			out = append(out, form.Get(key))
		}
	}
	return out
}

func (a Account) elb(c Call) ([]Demand, bool) {
	const prefix = "elasticloadbalancing:"
	if name := c.Form.Get("LoadBalancerName"); name != "" { // a Classic Load Balancer, which has no path before its name
		return []Demand{{Action: prefix + c.Action, Resource: a.arn("elasticloadbalancing", a.Region, a.ID, "loadbalancer/"+name)}}, true
	}
	d, ok := elbActions[c.Action]
	if !ok {
		return []Demand{{Action: prefix + c.Action, Resource: "*"}}, strings.HasPrefix(c.Action, "Describe")
	}
	given := map[string]string{}
	for key := range c.Form {
		if rest, ok := strings.CutPrefix(key, "Tags.member."); ok && strings.HasSuffix(rest, ".Key") {
			given[c.Form.Get(key)] = c.Form.Get(strings.TrimSuffix(key, "Key") + "Value")
		}
		if strings.HasPrefix(key, "TagKeys.member.") {
			given[c.Form.Get(key)] = ""
		}
	}
	var out []Demand
	add := func(action, arn string, contexts ...map[string][]string) {
		context := tagContext(given)
		if c.Action == "RemoveTags" {
			context = map[string][]string{}
			if len(given) > 0 {
				context["aws:TagKeys"] = slices.Sorted(maps.Keys(given))
			}
		}
		for _, more := range contexts {
			maps.Copy(context, more)
		}
		for key, parameter := range elbKeys {
			if ids := elbNamed(c.Form, []string{parameter}); len(ids) > 0 && action != "AddTags" {
				context[key] = ids
			}
		}
		if mapped := elbMapped(c.Form); len(mapped) > 0 && action != "AddTags" {
			context["elasticloadbalancing:Subnet"] = mapped
		}
		out = append(out, Demand{Action: prefix + action, Resource: arn, Context: context})
	}
	for _, arn := range elbNamed(c.Form, d.on) {
		var tags map[string]string
		if a.BalancerTags != nil {
			tags = a.BalancerTags(arn)
		}
		context := map[string][]string{}
		for k, v := range tags {
			context["aws:ResourceTag/"+k] = []string{v}
			context["elasticloadbalancing:ResourceTag/"+k] = []string{v}
		}
		add(c.Action, arn, context)
	}
	for _, made := range d.makes {
		arn := a.arn("elasticloadbalancing", a.Region, a.ID, made+"/"+c.Form.Get("Name")+"/*")
		if made == "listener/net" { // its permission is asked for on the load balancer
			_, path, _ := strings.Cut(c.Form.Get("LoadBalancerArn"), ":loadbalancer/net/")
			arn = a.arn("elasticloadbalancing", a.Region, a.ID, made+"/"+path+"/*")
		} else {
			add(c.Action, arn)
		}
		if len(given) > 0 {
			add("AddTags", arn, map[string][]string{"elasticloadbalancing:CreateAction": {c.Action}})
		}
	}
	if len(out) == 0 { // the request names nothing
		add(c.Action, a.arn("elasticloadbalancing", a.Region, a.ID, "*"))
	}
	return out, true
}

// elbNamed returns the ARNs in parameters, also of lists, each once.
func elbNamed(form url.Values, names []string) []string {
	var out []string
	for _, n := range names {
		for _, key := range slices.Sorted(maps.Keys(form)) {
			if v := form.Get(key); (key == n || strings.HasPrefix(key, n+".")) && v != "" && !slices.Contains(out, v) {
				out = append(out, v)
			}
		}
	}
	return out
}
