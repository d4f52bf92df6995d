package cloud

import (
	"encoding/json"
	"fmt"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// getServiceQuota is the one action of Service Quotas that is served.
const getServiceQuota = "GetServiceQuota"

// quotaItem is a quota in an answer.
type quotaItem struct {
	ServiceCode, QuotaCode, QuotaName, QuotaArn string //nolint:revive // Service Quotas' own spelling
	Value                                       float64
	Unit                                        string
	Adjustable                                  bool
}

// serveQuotas runs an action of Service Quotas.
// https://docs.aws.amazon.com/servicequotas/2019-06-24/apireference/API_GetServiceQuota.html
func serveQuotas(compute *ec2.Compute, region, account, action string, body []byte) (any, error) {
	if action != getServiceQuota {
		return nil, wire.Refuse("UnknownOperationException", "The operation %s is not known here.", action)
	}
	var in struct{ ServiceCode, QuotaCode string }
	if err := json.Unmarshal(body, &in); err != nil {
		return nil, wire.Refuse("SerializationException", "The request cannot be read: %v", err)
	}
	q, value, ok := compute.Quota(in.ServiceCode, in.QuotaCode)
	if !ok {
		return nil, wire.Refuse("NoSuchResourceException", "The request failed because the specified service does not exist.")
	}
	return struct{ Quota quotaItem }{quotaItem{
		ServiceCode: q.Service, QuotaCode: q.Code, QuotaName: q.Title, QuotaArn: fmt.Sprintf("arn:%s:servicequotas:%s:%s:%s/%s", wire.Partition(region), region, account, q.Service, q.Code),
		Value: float64(value), Unit: "None", Adjustable: true,
	}}, nil
}
