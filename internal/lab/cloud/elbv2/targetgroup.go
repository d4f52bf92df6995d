package elbv2

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

var targetGroupActions = map[string]action{
	"CreateTargetGroup":    writes(createTargetGroup),
	"DeleteTargetGroup":    writes(deleteTargetGroup),
	"DescribeTargetGroups": reads(describeTargetGroups),
	"ModifyTargetGroup":    writes(modifyTargetGroup),
}

// healthCheckRequest has the parameters of health checks; a nil or empty one keeps its value.
type healthCheckRequest struct {
	HealthCheckEnabled         *bool
	HealthCheckProtocol        string
	HealthCheckPort            string
	HealthCheckPath            string
	HealthCheckIntervalSeconds *int
	HealthCheckTimeoutSeconds  *int
	HealthyThresholdCount      *int
	UnhealthyThresholdCount    *int
	Matcher                    *struct{ HttpCode string }
}

type createTargetGroupRequest struct {
	healthCheckRequest
	Name            string
	Protocol        string
	ProtocolVersion string
	Port            *int
	VpcId           string
	TargetType      string
	IpAddressType   string
	Tags            []tag `query:"Tags.member"`
}

type targetGroupsAnswer struct {
	TargetGroups []targetGroupItem `xml:"TargetGroups>member"`
	NextMarker   string            `xml:"NextMarker,omitempty"`
}

func createTargetGroup(t *tx, in *createTargetGroupRequest) (any, error) {
	if err := checkName("target group", in.Name); err != nil {
		return nil, err
	}
	switch {
	case in.TargetType != "" && in.TargetType != "instance":
		return nil, badConfiguration("The local EC2 has target groups of the target type instance only")
	case in.Protocol == "":
		return nil, invalid("A protocol must be specified")
	case in.Protocol != "TCP":
		return nil, badConfiguration("The local EC2 has target groups of the protocol TCP only")
	case in.ProtocolVersion != "":
		return nil, badConfiguration("A protocol version cannot be specified for target groups of the protocol TCP")
	case in.IpAddressType != "" && in.IpAddressType != "ipv4":
		return nil, badConfiguration("The local EC2 has target groups of the IP address type ipv4 only")
	case in.Port == nil:
		return nil, invalid("A port must be specified")
	case *in.Port < 1 || *in.Port > 65535:
		return nil, invalid("1 validation error detected: Value '%d' at 'port' failed to satisfy constraint: Member must be between 1 and 65535", *in.Port)
	case in.VpcId == "":
		return nil, invalid("A VPC ID must be specified")
	case !t.s.cfg.Compute.HasVPC(in.VpcId):
		return nil, invalid("The VPC ID '%s' is not found", in.VpcId)
	}
	tags, err := checkTags(in.Tags)
	if err != nil {
		return nil, err
	}
	check, err := in.healthCheck(healthCheck{})
	if err != nil {
		return nil, err
	}
	for _, g := range sorted(t.st.TargetGroups) {
		if g.Name == in.Name {
			if g.VPC != in.VpcId || g.Port != *in.Port || g.Check != check || !maps.Equal(t.st.Tags[g.ARN], tags) {
				return nil, wire.Refuse("DuplicateTargetGroupName", "A target group with the same name '%s' exists, but with different settings", in.Name)
			}
			return targetGroupsAnswer{TargetGroups: []targetGroupItem{t.targetGroupItem(g)}}, nil
		}
	}
	if len(t.st.TargetGroups) >= MaxTargetGroups {
		return nil, wire.Refuse("TooManyTargetGroups", "The maximum number of target groups has been reached")
	}
	g := &targetGroup{Name: in.Name, ID: t.newID(), VPC: in.VpcId, Port: *in.Port, Created: t.now, Check: check, Attributes: map[string]string{}}
	g.ARN = t.arn("targetgroup/" + g.Name + "/" + g.ID)
	t.st.TargetGroups[g.ARN] = g
	t.setTags(g.ARN, tags)
	t.created = append(t.created, g.ARN)
	return targetGroupsAnswer{TargetGroups: []targetGroupItem{t.targetGroupItem(g)}}, nil
}

// defaultTimeout is the timeout of a health check by its protocol, in seconds.
var defaultTimeout = map[string]int{"TCP": 10, "HTTP": 6, "HTTPS": 10}

// The port of a health check that is that of the target, and the codes of an answer that is well.
const (
	trafficPort    = "traffic-port"
	defaultMatcher = "200-399"
)

var validMatcher = regexp.MustCompile(`^\d{3}(-\d{3})?(,\d{3}(-\d{3})?)*$`)

// healthCheck returns the health check of a request, whose other values are those of c, or the defaults.
// https://docs.aws.amazon.com/elasticloadbalancing/latest/network/target-group-health-checks.html
func (in healthCheckRequest) healthCheck(c healthCheck) (healthCheck, error) {
	was := c.Protocol
	c.Protocol = cmp.Or(in.HealthCheckProtocol, c.Protocol, "TCP")
	c.Port = cmp.Or(in.HealthCheckPort, c.Port, trafficPort)
	http := c.Protocol == "HTTP" || c.Protocol == "HTTPS"
	if _, known := defaultTimeout[c.Protocol]; !known {
		return c, invalid("Health check protocol '%s' must be one of 'TCP', 'HTTP', 'HTTPS'", c.Protocol)
	}
	if _, ok := wholeNumber(c.Port, 1, 65535); !ok && c.Port != trafficPort {
		return c, invalid("Health check port '%s' must be '%s' or between 1 and 65535", c.Port, trafficPort)
	}
	if !http {
		c.Path, c.Matcher = "", ""
	} else {
		c.Path, c.Matcher = cmp.Or(c.Path, "/"), cmp.Or(c.Matcher, defaultMatcher)
	}
	if in.HealthCheckPath != "" {
		if !http || !strings.HasPrefix(in.HealthCheckPath, "/") || len(in.HealthCheckPath) > 1024 {
			return c, invalid("Health check path '%s' is not valid for the protocol %s", in.HealthCheckPath, c.Protocol)
		}
		c.Path = in.HealthCheckPath
	}
	if in.Matcher != nil && in.Matcher.HttpCode != "" {
		if !http || !validMatcher.MatchString(in.Matcher.HttpCode) {
			return c, invalid("Health check matcher HTTP code '%s' is not valid for the protocol %s", in.Matcher.HttpCode, c.Protocol)
		}
		c.Matcher = in.Matcher.HttpCode
	}
	if in.HealthCheckEnabled != nil && !*in.HealthCheckEnabled {
		return c, badConfiguration("Health checks must be enabled for target groups with target type 'instance'")
	}
	if c.Timeout == 0 || was != c.Protocol && was == "" {
		c.Timeout = defaultTimeout[c.Protocol]
	}
	c.Interval, c.Healthy, c.Unhealthy = cmp.Or(c.Interval, 30), cmp.Or(c.Healthy, 5), cmp.Or(c.Unhealthy, 2)
	for _, n := range []struct {
		name        string
		given       *int
		value       *int
		least, most int
	}{
		{"interval", in.HealthCheckIntervalSeconds, &c.Interval, 5, 300},
		{"timeout", in.HealthCheckTimeoutSeconds, &c.Timeout, 2, 120},
		{"healthy threshold count", in.HealthyThresholdCount, &c.Healthy, 2, 10},
		{"unhealthy threshold count", in.UnhealthyThresholdCount, &c.Unhealthy, 2, 10},
	} {
		if n.given == nil {
			continue
		}
		if *n.given < n.least || *n.given > n.most {
			return c, invalid("Health check %s '%d' must be in the range [%d, %d]", n.name, *n.given, n.least, n.most)
		}
		*n.value = *n.given
	}
	if c.Timeout > c.Interval {
		return c, invalid("Health check timeout '%d' must be smaller than or equal to the interval '%d'", c.Timeout, c.Interval)
	}
	return c, nil
}

type modifyTargetGroupRequest struct {
	healthCheckRequest
	TargetGroupArn string
}

func modifyTargetGroup(t *tx, in *modifyTargetGroupRequest) (any, error) {
	g, err := t.targetGroup(in.TargetGroupArn)
	if err != nil {
		return nil, err
	}
	if g.Check, err = in.healthCheck(g.Check); err != nil {
		return nil, err
	}
	return targetGroupsAnswer{TargetGroups: []targetGroupItem{t.targetGroupItem(g)}}, nil
}

type targetGroupRequest struct{ TargetGroupArn string }

// targetGroup returns the target group with an ARN.
func (t *tx) targetGroup(arn string) (*targetGroup, error) {
	if !strings.HasPrefix(arn, t.arn("targetgroup/")) {
		return nil, invalid("'%s' is not a valid target group ARN", arn)
	}
	g := t.st.TargetGroups[arn]
	if g == nil || t.s.cfg.Faults.Hidden(arn, t.now) {
		return nil, wire.Refuse("TargetGroupNotFound", "Target groups '%s' not found", arn)
	}
	return g, nil
}

// deleteTargetGroup says that it worked if there is no such target group.
func deleteTargetGroup(t *tx, in *targetGroupRequest) (any, error) {
	if !strings.HasPrefix(in.TargetGroupArn, t.arn("targetgroup/")) {
		return nil, invalid("'%s' is not a valid target group ARN", in.TargetGroupArn)
	}
	if t.st.balancerOf(in.TargetGroupArn) != nil {
		return nil, wire.Refuse("ResourceInUse", "Target group '%s' is currently in use by a listener or a rule", in.TargetGroupArn)
	}
	delete(t.st.TargetGroups, in.TargetGroupArn)
	delete(t.st.Tags, in.TargetGroupArn)
	return none{}, nil
}

type targetGroupItem struct {
	ARN           string   `xml:"TargetGroupArn"`
	Name          string   `xml:"TargetGroupName"`
	Protocol      string   `xml:"Protocol"`
	Port          int      `xml:"Port"`
	VPC           string   `xml:"VpcId"`
	CheckProtocol string   `xml:"HealthCheckProtocol"`
	CheckPort     string   `xml:"HealthCheckPort"`
	CheckEnabled  bool     `xml:"HealthCheckEnabled"`
	Interval      int      `xml:"HealthCheckIntervalSeconds"`
	Timeout       int      `xml:"HealthCheckTimeoutSeconds"`
	Healthy       int      `xml:"HealthyThresholdCount"`
	Unhealthy     int      `xml:"UnhealthyThresholdCount"`
	Path          string   `xml:"HealthCheckPath,omitempty"`
	Matcher       *matcher `xml:"Matcher,omitempty"`
	LoadBalancers []string `xml:"LoadBalancerArns>member"`
	TargetType    string   `xml:"TargetType"`
	IPAddressType string   `xml:"IpAddressType"`
}

type matcher struct {
	HTTPCode string `xml:"HttpCode"`
}

func (t *tx) targetGroupItem(g *targetGroup) targetGroupItem {
	item := targetGroupItem{
		ARN: g.ARN, Name: g.Name, Protocol: "TCP", Port: g.Port, VPC: g.VPC, CheckProtocol: g.Check.Protocol, CheckPort: g.Check.Port,
		CheckEnabled: true, Interval: g.Check.Interval, Timeout: g.Check.Timeout, Healthy: g.Check.Healthy, Unhealthy: g.Check.Unhealthy,
		Path: g.Check.Path, TargetType: "instance", IPAddressType: "ipv4",
	}
	if g.Check.Matcher != "" {
		item.Matcher = &matcher{g.Check.Matcher}
	}
	if b := t.st.balancerOf(g.ARN); b != nil {
		item.LoadBalancers = []string{b.ARN}
	}
	return item
}

type describeTargetGroupsRequest struct {
	page
	LoadBalancerArn string
	TargetGroupArns []string `query:"TargetGroupArns.member"`
	Names           []string `query:"Names.member"`
}

func describeTargetGroups(t *tx, in *describeTargetGroupsRequest) (any, error) {
	given := 0
	for _, some := range []int{len(in.LoadBalancerArn), len(in.TargetGroupArns), len(in.Names)} {
		given += min(1, some)
	}
	if given > 1 {
		return nil, invalid("You can specify one of the following: a load balancer ARN, target group ARNs, or target group names")
	}
	all := sorted(t.st.TargetGroups)
	if len(in.TargetGroupArns) == 0 {
		all = slices.DeleteFunc(all, func(g *targetGroup) bool { return t.s.cfg.Faults.Hidden(g.ARN, t.now) })
	}
	found := all
	switch {
	case in.LoadBalancerArn != "":
		b, err := t.loadBalancer(in.LoadBalancerArn)
		if err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(all, func(g *targetGroup) bool { return t.st.balancerOf(g.ARN) != b })
	case given == 1:
		found = nil
		for _, arn := range in.TargetGroupArns {
			g, err := t.targetGroup(arn)
			if err != nil {
				return nil, err
			}
			found = append(found, g)
		}
		for _, name := range in.Names {
			i := slices.IndexFunc(all, func(g *targetGroup) bool { return g.Name == name })
			if i < 0 {
				return nil, wire.Refuse("TargetGroupNotFound", "One or more target groups not found")
			}
			found = append(found, all[i])
		}
	}
	found, next, err := cut(in.page, found, func(g *targetGroup) string { return g.ARN })
	if err != nil {
		return nil, err
	}
	out := targetGroupsAnswer{NextMarker: next}
	for _, g := range found {
		out.TargetGroups = append(out.TargetGroups, t.targetGroupItem(g))
	}
	return out, nil
}

// checkPort returns the port at which a target is checked.
func (g *targetGroup) checkPort(x target) int {
	if g.Check.Port == trafficPort {
		return x.Port
	}
	n, _ := strconv.Atoi(g.Check.Port) // it was checked when it was set
	return n
}
