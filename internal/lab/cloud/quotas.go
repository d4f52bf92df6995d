package cloud

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/elbv2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// Service Quotas: the quotas that the services enforce.

// quota is a quota of the account.
type quota struct {
	service, code, title string
	standard, value      int
}

// quotas returns the quotas that have a code.
func (a *Account) quotas() []quota {
	out := []quota{
		{"elasticloadbalancing", "L-69A177A2", "Network Load Balancers per Region", elbv2.MaxLoadBalancers, elbv2.MaxLoadBalancers},
		{"elasticloadbalancing", "L-B22855CB", "Target Groups per Region", elbv2.MaxTargetGroups, elbv2.MaxTargetGroups},
	}
	for _, q := range ec2.NamedQuotas {
		if q.Code != "" {
			out = append(out, quota{q.Service, q.Code, q.Title, q.Default, a.compute.Quota(q)})
		}
	}
	return out
}

// quotaItem is a quota in an answer.
type quotaItem struct {
	ServiceCode, QuotaCode, QuotaName, QuotaArn string //nolint:revive // Service Quotas' own spelling
	Value                                       float64
	Unit                                        string
	Adjustable                                  bool
}

func (a *Account) quotaItem(q quota, value int) quotaItem {
	return quotaItem{
		ServiceCode: q.service, QuotaCode: q.code, QuotaName: q.title, QuotaArn: fmt.Sprintf("arn:%s:servicequotas:%s:%s:%s/%s", wire.Partition(a.cfg.Region), a.cfg.Region, a.cfg.AccountID, q.service, q.code),
		Value: float64(value), Unit: "None", Adjustable: true,
	}
}

type quotaRequest struct{ ServiceCode, QuotaCode string }

// quotaActions are the actions that are served.
var quotaActions = map[string]func(*Account, quotaRequest) (any, error){
	"GetServiceQuota":           (*Account).getServiceQuota,
	"GetAWSDefaultServiceQuota": (*Account).getDefaultQuota,
}

// QuotaActions returns the actions of Service Quotas that are served, sorted.
func QuotaActions() []string { return slices.Sorted(maps.Keys(quotaActions)) }

// serveQuotas runs an action of Service Quotas.
func (a *Account) serveQuotas(action string, body []byte) (any, error) {
	run, ok := quotaActions[action]
	if !ok {
		return nil, wire.Refuse("UnknownOperationException", "The operation %s is not known here.", action)
	}
	var in quotaRequest
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, wire.Refuse("SerializationException", "The request cannot be read: %v", err)
	}
	return run(a, in)
}

func (a *Account) findQuota(in quotaRequest) (quota, error) {
	all := a.quotas()
	i := slices.IndexFunc(all, func(q quota) bool { return q.service == in.ServiceCode && q.code == in.QuotaCode })
	if i < 0 {
		return quota{}, wire.Refuse("NoSuchResourceException", "The request failed because the specified service does not exist.")
	}
	return all[i], nil
}

// getServiceQuota knows a quota only if it was raised: AWS has no applied value of a quota that nobody has changed.
// https://docs.aws.amazon.com/servicequotas/2019-06-24/apireference/API_GetServiceQuota.html
func (a *Account) getServiceQuota(in quotaRequest) (any, error) {
	q, err := a.findQuota(in)
	if err != nil {
		return nil, err
	}
	if q.value == q.standard {
		return nil, wire.Refuse("NoSuchResourceException", "The request failed because the specified quota has no applied value.")
	}
	return struct{ Quota quotaItem }{a.quotaItem(q, q.value)}, nil
}

// https://docs.aws.amazon.com/servicequotas/2019-06-24/apireference/API_GetAWSDefaultServiceQuota.html
func (a *Account) getDefaultQuota(in quotaRequest) (any, error) {
	q, err := a.findQuota(in)
	if err != nil {
		return nil, err
	}
	return struct{ Quota quotaItem }{a.quotaItem(q, q.standard)}, nil
}
