// Package quotas says whether an account has room for what a plan makes. It adds what the account uses to what the plan
// needs, and asks Service Quotas for the limits. It reads only.
package quotas

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/servicequotas"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/quotas/need"
)

// Line is one quota: what a plan needs of it, what the account uses, and the limit.
type Line struct {
	need.Quota
	Needed, Used, Limit float64
	NeedUnknown         bool     // vCPUs that the account does not tell: the plan is not compared
	UseUnknown          bool     // what the account uses is assumed to be nothing
	Assumed             bool     // whether the limit is AWS's default because the account's could not be asked
	Notes               []string // what could not be asked, and what is assumed instead
}

// Short reports whether the plan does not fit.
func (l Line) Short() bool { return l.Needed > 0 && l.Needed+l.Used > l.Limit }

// Title names the quota, with its code.
func (l Line) Title() string {
	if l.Code == "" {
		return l.Name
	}
	return fmt.Sprintf("%s (%s)", l.Name, l.Code)
}

func (l Line) String() string {
	needed, used, limit := l.numbers()
	return strings.Join(append([]string{fmt.Sprintf("%s: %s needed, %s used, limit %s", l.Title(), needed, used, limit)}, l.Notes...), "; ")
}

// numbers returns the numbers as text: a question mark stands for an unknown number.
func (l Line) numbers() (needed, used, limit string) {
	needed, used, limit = number(l.Needed), number(l.Used), number(l.Limit)
	if l.NeedUnknown {
		needed = "?"
	}
	if l.UseUnknown {
		used = "?"
	}
	return needed, used, limit
}

// Shortage says what is missing, and how to get more.
func (l Line) Shortage() string {
	wanted := math.Ceil(l.Needed + l.Used)
	needed, used, limit := l.numbers()
	text := fmt.Sprintf("%s: %s needed and %s used, and the limit is %s. Ask for at least %.0f", l.Title(), needed, used, limit, wanted)
	if l.Code == "" {
		return text + " in a support case: AWS publishes no code for this quota"
	}
	return text + fmt.Sprintf(": aws service-quotas request-service-quota-increase --service-code %s --quota-code %s --desired-value %.0f", l.Service, l.Code, wanted)
}

func number(n float64) string { return strconv.FormatFloat(math.Round(n*100)/100, 'f', -1, 64) }

// check compares one plan with one account.
type check struct {
	*infraaws.Client
	plan need.Plan
}

// Check returns a line for each quota that the plan needs, and what it could not ask at all. It needs no permission:
// where AWS refuses to answer, the lines say what is assumed or not known. The error is what else has failed.
func Check(ctx context.Context, client *infraaws.Client, plan need.Plan) (lines []Line, notes []string, err error) {
	plan.Counts = maps.Clone(plan.Counts)
	c := &check{client, plan}
	if err := c.leave(ctx); err != nil {
		note, err := refused(err, "VPCs that the plan deletes are not taken away")
		if err != nil {
			return nil, nil, err
		}
		notes = append(notes, note)
	}
	types := plan.Types()
	each, err := c.vcpus(ctx, types)
	uncompared := "" // why vCPUs are not
	if err != nil {
		if uncompared, err = refused(err, "vCPUs could not be compared"); err != nil {
			return nil, nil, err
		}
	}
	for _, name := range types {
		switch {
		case !need.Standard(name):
			notes = append(notes, fmt.Sprintf("%s is no Standard instance: its family has a quota of its own, which is not compared", name))
		case uncompared == "" && each[name] == 0:
			notes = append(notes, fmt.Sprintf("%s is not known in %s: its vCPUs are not counted", name, client.Region))
		}
	}
	for i, quota := range need.Quotas {
		l := Line{Quota: quota}
		var needed, used int
		var err error
		switch kind := need.Kind(i); kind {
		case need.NATGateways:
			if len(plan.NAT) > 0 {
				needed, used, err = c.natGateways(ctx)
			}
		case need.Routes:
			if len(plan.Routes) > 0 {
				needed, used, err = c.routes(ctx)
			}
		default:
			needed = c.plan.Counts[kind]
			if spot := kind == need.SpotVCPUs; spot || kind == need.VCPUs {
				needed = plan.VCPUs(spot, each)
				if uncompared != "" && plan.Running(spot) > 0 {
					l.NeedUnknown, l.Notes = true, append(l.Notes, uncompared)
				}
			}
			if needed > 0 || l.NeedUnknown {
				used, err = c.used(ctx, kind)
			}
		}
		if needed <= 0 && err == nil && !l.NeedUnknown {
			continue
		}
		if err != nil {
			note, err := refused(err, "what the account uses is not known")
			if err != nil {
				return lines, notes, err
			}
			l.UseUnknown, l.Notes = true, append(l.Notes, note)
		}
		l.Needed, l.Used = float64(needed), float64(used)
		if need.Kind(i) == need.GP3 {
			l.Needed, l.Used = l.Needed/1024, l.Used/1024
		}
		if err := c.limit(ctx, &l); err != nil {
			return lines, notes, err
		}
		lines = append(lines, l)
	}
	return lines, notes, nil
}

// limit asks for the account's limit. A quota that was never changed may have none, and then AWS's default holds.
// https://docs.aws.amazon.com/servicequotas/2019-06-24/apireference/API_GetServiceQuota.html
func (c *check) limit(ctx context.Context, l *Line) error {
	l.Limit = l.Default
	if l.Code == "" {
		l.Assumed = true
		l.Notes = append(l.Notes, "the limit is the default of AWS, which publishes no code for this quota")
		return nil
	}
	out, err := c.Quotas.GetServiceQuota(ctx, &servicequotas.GetServiceQuotaInput{ServiceCode: &l.Service, QuotaCode: &l.Code})
	if err == nil && out.Quota != nil && out.Quota.Value != nil {
		l.Limit = sdk.ToFloat64(out.Quota.Value)
		return nil
	}
	denied := ""
	if err != nil && !infraaws.IsCode(err, "NoSuchResourceException") {
		if denied, err = refused(err, "the limit is the default of AWS"); err != nil {
			return err
		}
	}
	standard, err := c.Quotas.GetAWSDefaultServiceQuota(ctx, &servicequotas.GetAWSDefaultServiceQuotaInput{ServiceCode: &l.Service, QuotaCode: &l.Code})
	switch {
	case err == nil && standard.Quota != nil && standard.Quota.Value != nil:
		l.Limit = sdk.ToFloat64(standard.Quota.Value)
	case err != nil && denied == "":
		if denied, err = refused(err, "the limit is the default of AWS"); err != nil {
			return err
		}
	}
	if denied != "" {
		l.Assumed, l.Notes = true, append(l.Notes, denied)
	}
	return nil
}

// refused turns a missing permission into a note with what is done instead. Every other error stays one.
func refused(err error, instead string) (string, error) {
	denied := (*infraaws.DeniedError)(nil)
	if !errors.As(err, &denied) {
		return "", err
	}
	return fmt.Sprintf("%s: no permission for %s", instead, denied.Action), nil
}

// Shortages returns the lines for which the plan does not fit.
func Shortages(lines []Line) []Line {
	return slices.DeleteFunc(slices.Clone(lines), func(l Line) bool { return !l.Short() })
}
