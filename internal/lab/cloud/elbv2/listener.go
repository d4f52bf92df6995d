package elbv2

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

var listenerActions = map[string]action{
	"CreateListener":    writes(createListener),
	"DeleteListener":    writes(deleteListener),
	"DescribeListeners": reads(describeListeners),
	"ModifyListener":    writes(modifyListener),
}

type actionRequest struct {
	Type           string
	Order          *int
	TargetGroupArn string
	ForwardConfig  *struct {
		TargetGroups []struct {
			TargetGroupArn string
			Weight         *int
		} `query:"TargetGroups.member"`
	}
}

type createListenerRequest struct {
	LoadBalancerArn string
	Protocol        string
	Port            *int
	DefaultActions  []actionRequest `query:"DefaultActions.member"`
	Tags            []tag           `query:"Tags.member"`
}

type listenersAnswer struct {
	Listeners  []listenerItem `xml:"Listeners>member"`
	NextMarker string         `xml:"NextMarker,omitempty"`
}

func createListener(t *tx, in *createListenerRequest) (any, error) {
	b, err := t.loadBalancer(in.LoadBalancerArn)
	if err != nil {
		return nil, err
	}
	if in.Port == nil || in.Protocol == "" {
		return nil, invalid("A listener protocol and a listener port must be specified")
	}
	if err := t.checkListener(b, nil, in.Protocol, *in.Port); err != nil {
		return nil, err
	}
	group, err := t.forwardTo(b, in.DefaultActions)
	if err != nil {
		return nil, err
	}
	tags, err := checkTags(in.Tags)
	if err != nil {
		return nil, err
	}
	for _, l := range t.st.listenersOf(b.ARN) {
		switch {
		case l.Port != *in.Port:
		case l.TargetGroup == group.ARN && maps.Equal(t.st.Tags[l.ARN], tags): // the same again
			return listenersAnswer{Listeners: []listenerItem{l.item()}}, nil
		default:
			return nil, wire.Refuse("DuplicateListener", "A listener already exists on this port for this load balancer '%s'", b.ARN)
		}
	}
	if len(t.st.listenersOf(b.ARN)) >= maxListeners {
		return nil, wire.Refuse("TooManyListeners", "The maximum number of listeners on load balancer '%s' has been reached", b.ARN)
	}
	l := &listener{ID: t.newID(), LoadBalancer: b.ARN, Port: *in.Port, TargetGroup: group.ARN}
	l.ARN = t.arn("listener/" + b.path() + "/" + l.ID)
	t.use(group, func() { t.st.Listeners[l.ARN] = l })
	t.setTags(l.ARN, tags)
	t.created = append(t.created, l.ARN)
	return listenersAnswer{Listeners: []listenerItem{l.item()}}, nil
}

// use changes what listeners there are, of which one uses a target group. Targets of a group that comes
// into use are checked from the start.
func (t *tx) use(g *targetGroup, change func()) {
	unused := t.st.balancerOf(g.ARN) == nil
	change()
	for i := range g.Targets {
		if unused {
			g.Targets[i].Health, g.Targets[i].Checked = healthInitial, false
		}
	}
	t.changed()
	t.afterCommit(t.s.startChecks)
}

func (t *tx) checkListener(b *loadBalancer, own *listener, protocol string, port int) error {
	switch {
	case protocol == "HTTP" || protocol == "HTTPS":
		return wire.Refuse("UnsupportedProtocol", "Protocol '%s' is not supported on load balancers of type 'network'", protocol)
	case protocol != "TCP":
		return wire.Refuse("UnsupportedProtocol", "The local EC2 has listeners of the protocol TCP only")
	case port < 1 || port > 65535:
		return invalid("1 validation error detected: Value '%d' at 'port' failed to satisfy constraint: Member must be between 1 and 65535", port)
	}
	for _, l := range t.st.listenersOf(b.ARN) {
		if own != nil && l.ARN != own.ARN && l.Port == port {
			return wire.Refuse("DuplicateListener", "A listener already exists on this port for this load balancer '%s'", b.ARN)
		}
	}
	return nil
}

// forwardTo returns the target group to which the actions of a listener forward.
func (t *tx) forwardTo(b *loadBalancer, actions []actionRequest) (*targetGroup, error) {
	if len(actions) != 1 {
		return nil, invalid("A listener must have exactly one default action")
	}
	a := actions[0]
	if a.Type != "forward" {
		return nil, wire.Refuse("InvalidLoadBalancerAction", "Actions of type '%s' are not supported on load balancers of type 'network'", a.Type)
	}
	arn := a.TargetGroupArn
	if a.ForwardConfig != nil {
		groups := a.ForwardConfig.TargetGroups
		if len(groups) != 1 || arn != "" && groups[0].TargetGroupArn != arn {
			return nil, wire.Refuse("InvalidLoadBalancerAction", "The local EC2 forwards to exactly one target group")
		}
		arn = groups[0].TargetGroupArn
	}
	if arn == "" {
		return nil, invalid("A target group ARN must be specified")
	}
	g, err := t.targetGroup(arn)
	if err != nil {
		return nil, err
	}
	if g.VPC != b.VPC {
		return nil, badConfiguration("Target group '%s' is not in the VPC of the load balancer", arn)
	}
	if other := t.st.balancerOf(arn); other != nil && other != b {
		return nil, wire.Refuse("TargetGroupAssociationLimit", "The following target groups cannot be associated with more than one load balancer: %s", arn)
	}
	return g, nil
}

type listenerRequest struct{ ListenerArn string }

// listener returns the listener with an ARN.
func (t *tx) listener(arn string) (*listener, error) {
	if !strings.HasPrefix(arn, t.arn("listener/")) {
		return nil, invalid("'%s' is not a valid listener ARN", arn)
	}
	l := t.st.Listeners[arn]
	if l == nil || t.s.cfg.Faults.Hidden(arn, t.now) {
		return nil, wire.Refuse("ListenerNotFound", "One or more listeners not found")
	}
	return l, nil
}

func deleteListener(t *tx, in *listenerRequest) (any, error) {
	l, err := t.listener(in.ListenerArn)
	if err != nil {
		return nil, err
	}
	t.dropListener(l)
	t.changed()
	return none{}, nil
}

func (t *tx) dropListener(l *listener) {
	delete(t.st.Listeners, l.ARN)
	delete(t.st.Tags, l.ARN)
	if g := t.st.TargetGroups[l.TargetGroup]; g != nil {
		t.dropUnused(g)
	}
}

type modifyListenerRequest struct {
	ListenerArn    string
	Protocol       string
	Port           *int
	DefaultActions []actionRequest `query:"DefaultActions.member"`
}

func modifyListener(t *tx, in *modifyListenerRequest) (any, error) {
	l, err := t.listener(in.ListenerArn)
	if err != nil {
		return nil, err
	}
	b := t.st.LoadBalancers[l.LoadBalancer]
	port := l.Port
	if in.Port != nil {
		port = *in.Port
	}
	if err := t.checkListener(b, l, cmp.Or(in.Protocol, "TCP"), port); err != nil {
		return nil, err
	}
	was := t.st.TargetGroups[l.TargetGroup]
	to := was
	if len(in.DefaultActions) > 0 {
		if to, err = t.forwardTo(b, in.DefaultActions); err != nil {
			return nil, err
		}
	}
	t.use(to, func() { l.Port, l.TargetGroup = port, to.ARN })
	t.dropUnused(was)
	return listenersAnswer{Listeners: []listenerItem{l.item()}}, nil
}

type listenerItem struct {
	ARN          string       `xml:"ListenerArn"`
	LoadBalancer string       `xml:"LoadBalancerArn"`
	Port         int          `xml:"Port"`
	Protocol     string       `xml:"Protocol"`
	Actions      []actionItem `xml:"DefaultActions>member"`
}

type actionItem struct {
	Type    string        `xml:"Type"`
	Group   string        `xml:"TargetGroupArn"`
	Forward []forwardItem `xml:"ForwardConfig>TargetGroups>member"`
}

type forwardItem struct {
	Group string `xml:"TargetGroupArn"`
}

func (l *listener) item() listenerItem {
	return listenerItem{l.ARN, l.LoadBalancer, l.Port, "TCP", []actionItem{{"forward", l.TargetGroup, []forwardItem{{l.TargetGroup}}}}}
}

type describeListenersRequest struct {
	page
	LoadBalancerArn string
	ListenerArns    []string `query:"ListenerArns.member"`
}

func describeListeners(t *tx, in *describeListenersRequest) (any, error) {
	var found []*listener
	switch {
	case (in.LoadBalancerArn == "") == (len(in.ListenerArns) == 0):
		return nil, invalid("You must specify either listener ARNs or a load balancer ARN")
	case in.LoadBalancerArn != "":
		b, err := t.loadBalancer(in.LoadBalancerArn)
		if err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(sorted(t.st.Listeners), func(l *listener) bool {
			return l.LoadBalancer != b.ARN || t.s.cfg.Faults.Hidden(l.ARN, t.now)
		})
	}
	for _, arn := range in.ListenerArns {
		l, err := t.listener(arn)
		if err != nil {
			return nil, err
		}
		found = append(found, l)
	}
	found, next, err := cut(in.page, found, func(l *listener) string { return l.ARN })
	if err != nil {
		return nil, err
	}
	out := listenersAnswer{NextMarker: next}
	for _, l := range found {
		out.Listeners = append(out.Listeners, l.item())
	}
	return out, nil
}
