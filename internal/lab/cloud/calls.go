package cloud

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// record writes one call to the log of calls: who asked for what, and how it ended. It has no
// secrets: of what a call sends it has the names and ids of resources. key is empty if the call was
// not signed by somebody known.
func (a *Account) record(r *http.Request, req wire.Request, id, key string, took time.Duration, refused error) {
	attrs := []slog.Attr{
		slog.String("service", req.Protocol.Name), slog.String("action", req.Action), slog.Any("resources", namedIn(req)),
		slog.String("source", r.RemoteAddr), slog.String("request_id", id), slog.Int64("milliseconds", took.Milliseconds()),
	}
	if key != "" {
		attrs = append(attrs, slog.String("caller", a.tokens.Caller(key).ARN), slog.String("access_key_id", key))
	}
	if refused == nil {
		a.cfg.Calls.LogAttrs(r.Context(), slog.LevelInfo, "answered", attrs...)
		return
	}
	e := wire.AsError(refused)
	a.cfg.Calls.LogAttrs(r.Context(), slog.LevelInfo, "refused", append(attrs, slog.String("code", e.Code), slog.String("message", e.Message))...)
}

// namedIn returns the names and ids of resources in a call's input, sorted.
func namedIn(req wire.Request) []string {
	var names []string
	if req.Body == nil {
		for parameter, values := range req.Form {
			if namesResource(parameter) {
				names = append(names, values...)
			}
		}
	} else {
		var in struct {
			Name, Path string
			ResourceID string `json:"ResourceId"`
			Names      []string
		}
		_ = json.Unmarshal(req.Body, &in) // the action says what is wrong with it
		names = append(in.Names, in.Name, in.Path, in.ResourceID)
	}
	slices.Sort(names)
	return slices.DeleteFunc(slices.Compact(names), func(n string) bool { return n == "" })
}

// namesResource reports whether a parameter of the query protocol names a resource, such as
// "InstanceId.1", "NetworkInterface.1.SubnetId", "GroupName", "RoleArn" or "Subnets.member.1".
func namesResource(parameter string) bool {
	parts := strings.Split(strings.TrimSuffix(strings.TrimRight(parameter, ".0123456789"), ".member"), ".")
	switch last := parts[len(parts)-1]; last {
	case "GroupName", "KeyName", "UserName", "RoleName", "PolicyName", "InstanceProfileName", "PublicIp", "Subnets", "SecurityGroups":
		return true
	case "Name", "Names":
		return len(parts) == 1 // and is not that of a filter
	default:
		return strings.HasSuffix(last, "Id") || strings.HasSuffix(last, "Arn") || strings.HasSuffix(last, "Arns")
	}
}
