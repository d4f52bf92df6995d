package elbv2

import (
	"maps"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// attribute is the default of an attribute, and what it may be.
type attribute struct {
	value string
	valid func(string) bool // nil if the local EC2 has the default only
}

// The attributes that somebody asks for here.
const (
	crossZoneKey          = "load_balancing.cross_zone.enabled"
	deletionProtectionKey = "deletion_protection.enabled"
	preserveClientKey     = "preserve_client_ip.enabled"
	drainingKey           = "deregistration_delay.timeout_seconds"
	drainedEndKey         = "deregistration_delay.connection_termination.enabled"
	unhealthyEndKey       = "target_health_state.unhealthy.connection_termination.enabled"
)

func boolean(v string) bool { return v == "true" || v == "false" }

// https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_LoadBalancerAttribute.html
var loadBalancerAttributes = map[string]attribute{
	"access_logs.s3.enabled":                 {"false", nil},
	"access_logs.s3.bucket":                  {"", nil},
	"access_logs.s3.prefix":                  {"", nil},
	crossZoneKey:                             {"false", boolean},
	deletionProtectionKey:                    {"false", boolean},
	"dns_record.client_routing_policy":       {"any_availability_zone", nil},
	"ipv6.deny_all_igw_traffic":              {"false", nil},
	"zonal_shift.config.enabled":             {"false", nil},
	"secondary_ips.auto_assigned.per_subnet": {"0", nil},
}

// https://docs.aws.amazon.com/elasticloadbalancing/latest/APIReference/API_TargetGroupAttribute.html
var targetGroupAttributes = map[string]attribute{
	preserveClientKey: {"true", boolean},
	drainingKey: {"300", func(v string) bool {
		_, ok := wholeNumber(v, 0, 3600)
		return ok
	}},
	drainedEndKey:   {"false", boolean},
	unhealthyEndKey: {"true", boolean},
	crossZoneKey: {"use_load_balancer_configuration", func(v string) bool {
		return boolean(v) || v == "use_load_balancer_configuration"
	}},
	"proxy_protocol_v2.enabled": {"false", nil},
	"stickiness.enabled":        {"false", nil},
	"stickiness.type":           {"source_ip", nil},
	"target_group_health.dns_failover.minimum_healthy_targets.count":                 {"1", nil},
	"target_group_health.dns_failover.minimum_healthy_targets.percentage":            {"off", nil},
	"target_group_health.unhealthy_state_routing.minimum_healthy_targets.count":      {"1", nil},
	"target_group_health.unhealthy_state_routing.minimum_healthy_targets.percentage": {"off", nil},
	"target_health_state.unhealthy.draining_interval_seconds":                        {"0", nil},
}

var attributeActions = map[string]action{
	"DescribeLoadBalancerAttributes": reads(describeLoadBalancerAttributes),
	"DescribeTargetGroupAttributes":  reads(describeTargetGroupAttributes),
	"ModifyLoadBalancerAttributes":   writes(modifyLoadBalancerAttributes),
	"ModifyTargetGroupAttributes":    writes(modifyTargetGroupAttributes),
}

type attributesAnswer struct {
	Attributes []tag `xml:"Attributes>member"`
}

// answer returns all attributes.
func answer(known map[string]attribute, get func(string) string) attributesAnswer {
	var out attributesAnswer
	for _, key := range slices.Sorted(maps.Keys(known)) {
		out.Attributes = append(out.Attributes, tag{key, get(key)})
	}
	return out
}

// setAttributes changes attributes. what names the resource in refusals.
func setAttributes(what string, known map[string]attribute, changed map[string]string, wanted []tag) error {
	if len(wanted) == 0 {
		return invalid("At least one attribute must be specified")
	}
	for i, w := range wanted {
		a, ok := known[w.Key]
		switch {
		case !ok:
			return badConfiguration("%s attribute key '%s' is not recognized", what, w.Key)
		case slices.ContainsFunc(wanted[:i], func(x tag) bool { return x.Key == w.Key }):
			return badConfiguration("%s attribute key '%s' is specified more than once", what, w.Key)
		case a.valid == nil && w.Value != a.value:
			return badConfiguration("The local EC2 has the attribute '%s' with the value '%s' only", w.Key, a.value)
		case a.valid != nil && !a.valid(w.Value):
			return badConfiguration("%s attribute value '%s' of key '%s' is not valid", what, w.Value, w.Key)
		}
		changed[w.Key] = w.Value
	}
	return nil
}

func describeLoadBalancerAttributes(t *tx, in *loadBalancerRequest) (any, error) {
	b, err := t.loadBalancer(in.LoadBalancerArn)
	if err != nil {
		return nil, err
	}
	return answer(loadBalancerAttributes, b.attribute), nil
}

type modifyLoadBalancerAttributesRequest struct {
	LoadBalancerArn string
	Attributes      []tag `query:"Attributes.member"`
}

func modifyLoadBalancerAttributes(t *tx, in *modifyLoadBalancerAttributesRequest) (any, error) {
	b, err := t.loadBalancer(in.LoadBalancerArn)
	if err != nil {
		return nil, err
	}
	if err := setAttributes("Load balancer", loadBalancerAttributes, b.Attributes, in.Attributes); err != nil {
		return nil, err
	}
	t.changed()
	return answer(loadBalancerAttributes, b.attribute), nil
}

func describeTargetGroupAttributes(t *tx, in *targetGroupRequest) (any, error) {
	g, err := t.targetGroup(in.TargetGroupArn)
	if err != nil {
		return nil, err
	}
	return answer(targetGroupAttributes, g.attribute), nil
}

type modifyTargetGroupAttributesRequest struct {
	TargetGroupArn string
	Attributes     []tag `query:"Attributes.member"`
}

func modifyTargetGroupAttributes(t *tx, in *modifyTargetGroupAttributesRequest) (any, error) {
	g, err := t.targetGroup(in.TargetGroupArn)
	if err != nil {
		return nil, err
	}
	if err := setAttributes("Target group", targetGroupAttributes, g.Attributes, in.Attributes); err != nil {
		return nil, err
	}
	t.changed()
	return answer(targetGroupAttributes, g.attribute), nil
}

var tagActions = map[string]action{
	"AddTags":      writes(addTags),
	"DescribeTags": reads(describeTags),
	"RemoveTags":   writes(removeTags),
}

type tag struct {
	Key   string `xml:"Key"`
	Value string `xml:"Value"`
}

const maxTags = 50

func checkTags(list []tag) (map[string]string, error) {
	tags := map[string]string{}
	for _, x := range list {
		if _, twice := tags[x.Key]; twice {
			return nil, wire.Refuse("DuplicateTagKeys", "Tag key '%s' was specified more than once", x.Key)
		}
		if len(x.Key) == 0 || len(x.Key) > 128 || len(x.Value) > 256 {
			return nil, invalid("The tag '%s' has a key of more than 128 characters, a value of more than 256, or no key", x.Key)
		}
		if len(x.Key) >= 4 && x.Key[:4] == "aws:" {
			return nil, invalid("aws: prefixed tag key names are not allowed for external use.")
		}
		tags[x.Key] = x.Value
	}
	if len(tags) > maxTags {
		return nil, wire.Refuse("TooManyTags", "The maximum number of tags is %d", maxTags)
	}
	return tags, nil
}

func (t *tx) setTags(arn string, tags map[string]string) {
	if len(tags) > 0 {
		t.st.Tags[arn] = tags
	}
}

// exists refuses an ARN of nothing.
func (t *tx) exists(arn string) error {
	if t.st.LoadBalancers[arn] != nil || t.st.TargetGroups[arn] != nil || t.st.Listeners[arn] != nil {
		return nil
	}
	if _, err := t.loadBalancer(arn); wire.AsError(err).Code == "LoadBalancerNotFound" {
		return err
	}
	if _, err := t.targetGroup(arn); wire.AsError(err).Code == "TargetGroupNotFound" {
		return err
	}
	if _, err := t.listener(arn); wire.AsError(err).Code == "ListenerNotFound" {
		return err
	}
	return invalid("'%s' is not a valid ARN", arn)
}

type tagsRequest struct {
	ResourceArns []string `query:"ResourceArns.member"`
	Tags         []tag    `query:"Tags.member"`
	TagKeys      []string `query:"TagKeys.member"`
}

func addTags(t *tx, in *tagsRequest) (any, error) {
	tags, err := checkTags(in.Tags)
	if err != nil {
		return nil, err
	}
	for _, arn := range in.ResourceArns {
		if err := t.exists(arn); err != nil {
			return nil, err
		}
		all := map[string]string{}
		maps.Copy(all, t.st.Tags[arn])
		maps.Copy(all, tags)
		if len(all) > maxTags {
			return nil, wire.Refuse("TooManyTags", "The maximum number of tags is %d", maxTags)
		}
		t.setTags(arn, all)
	}
	return none{}, nil
}

func removeTags(t *tx, in *tagsRequest) (any, error) {
	for _, arn := range in.ResourceArns {
		if err := t.exists(arn); err != nil {
			return nil, err
		}
		maps.DeleteFunc(t.st.Tags[arn], func(key, _ string) bool { return slices.Contains(in.TagKeys, key) })
	}
	return none{}, nil
}

type tagsAnswer struct {
	Descriptions []tagDescription `xml:"TagDescriptions>member"`
}

type tagDescription struct {
	ARN  string `xml:"ResourceArn"`
	Tags []tag  `xml:"Tags>member"`
}

func describeTags(t *tx, in *tagsRequest) (any, error) {
	if len(in.ResourceArns) == 0 || len(in.ResourceArns) > 20 {
		return nil, invalid("Between 1 and 20 resources must be specified")
	}
	var out tagsAnswer
	for _, arn := range in.ResourceArns {
		if err := t.exists(arn); err != nil {
			return nil, err
		}
		d := tagDescription{ARN: arn}
		for _, key := range slices.Sorted(maps.Keys(t.st.Tags[arn])) {
			d.Tags = append(d.Tags, tag{key, t.st.Tags[arn][key]})
		}
		out.Descriptions = append(out.Descriptions, d)
	}
	return out, nil
}

// TagsOf returns the tags of what has an ARN.
func (s *Service) TagsOf(arn string) map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.st.Tags[arn])
}
