package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
)

// nodeRules begins the description of every rule that the cloud controller manager adds to a group of nodes.
const nodeRules = "kubernetes.io/rule/nlb/"

// BalancedService returns a Service of type LoadBalancer for the pods of an app, with further fields of its spec.
func BalancedService(name, app, more string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {name: %s, namespace: default, annotations: {service.beta.kubernetes.io/aws-load-balancer-type: nlb}}
spec: {type: LoadBalancer, selector: {app: %s}, ports: [{port: 80, targetPort: 8080}]%s}
`, name, app, more)
}

// BalancerOf waits for the name of a Service's load balancer.
func (c *Cluster) BalancerOf(t *testing.T, service string) (host string) {
	t.Helper()
	// A manager that follows one that was killed waits for its lease first.
	Eventually(t, 3*time.Minute, "the Service "+service+" has a load balancer", func() (err error) {
		host, err = c.suite.Kubectl(t.Context(), c.Kubeconfig, nil, "get", "service", service, "-o", "jsonpath={.status.loadBalancer.ingress[0].hostname}")
		if err == nil && host == "" {
			said, failed := c.suite.Kubectl(t.Context(), c.Kubeconfig, nil, "describe", "service", service)
			err = errors.Join(fmt.Errorf("it has none:\n%s", said), failed)
		}
		return err
	})
	return host
}

// FromOutside asks a host from outside of the VPC, for five seconds at most.
func FromOutside(ctx context.Context, host string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return Fetch(ctx, "http://"+host+"/")
}

// Fetch returns a page, over a connection of its own.
func Fetch(ctx context.Context, url string) (string, error) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	return string(body), err
}

// ForServices checks how many load balancers the account has, that each of their listeners has a target group, and that the account has
// rules of Services only with a load balancer.
func (c *Cluster) ForServices(t *testing.T, want int) {
	t.Helper()
	cfg := c.suite.AWS()
	balancers := elb.NewFromConfig(cfg)
	all := Must[*elb.DescribeLoadBalancersOutput](t)(balancers.DescribeLoadBalancers(t.Context(), &elb.DescribeLoadBalancersInput{})).LoadBalancers
	groups := Must[*elb.DescribeTargetGroupsOutput](t)(balancers.DescribeTargetGroups(t.Context(), &elb.DescribeTargetGroupsInput{})).TargetGroups
	listeners := 0
	for _, b := range all {
		listeners += len(Must[*elb.DescribeListenersOutput](t)(balancers.DescribeListeners(t.Context(), &elb.DescribeListenersInput{LoadBalancerArn: b.LoadBalancerArn})).Listeners)
	}
	if len(all) != want || len(groups) != listeners || listeners < want {
		t.Errorf("%d load balancers with %d listeners and %d target groups, wanted %d load balancers", len(all), listeners, len(groups), want)
	}
	for _, r := range Must[*ec2.DescribeSecurityGroupRulesOutput](t)(ec2.NewFromConfig(cfg).DescribeSecurityGroupRules(t.Context(), &ec2.DescribeSecurityGroupRulesInput{})).SecurityGroupRules {
		if r.Description == nil || !strings.HasPrefix(*r.Description, nodeRules) {
			continue
		}
		_, of, _ := strings.Cut(*r.Description, "=") // empty for the rule that all share
		if want == 0 || of != "" && !slices.ContainsFunc(all, func(b elbtypes.LoadBalancer) bool { return *b.LoadBalancerName == of }) {
			t.Errorf("a rule is left: %s", *r.Description)
		}
	}
}
