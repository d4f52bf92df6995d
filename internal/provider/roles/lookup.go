package roles

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/tfsdk"
	"github.com/hashicorp/terraform-plugin-framework/types"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	awsaddress "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/address"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/balancer"
	awsmachine "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws/machine"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/controlplane"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/etcdbackup"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/etcdcluster"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout/workerpool"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/session"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// How the arguments of a role are found by the cluster's name. The machines are found by their tags, and the claim on a
// machine says whether it has the role. The keys must be in SSM under the default prefix.

func lookUpEtcd(ctx context.Context, d *session.Session, cluster string) (map[string]any, error) {
	hosts, err := hostsWith[etcdcluster.Cluster](ctx, d, cluster, infraaws.RoleController, infraaws.RoleEtcd)
	return map[string]any{"pki": cluster, "hosts": hosts}, err
}

func lookUpBackup(ctx context.Context, d *session.Session, cluster string) (map[string]any, error) {
	out := map[string]any{}
	var err error
	if out["hosts"], err = hostsWith[etcdbackup.Backup](ctx, d, cluster, infraaws.RoleController, infraaws.RoleEtcd); err == nil {
		out["etcd"], err = refTo(ctx, d, NewEtcdCluster(), cluster)
	}
	return out, err
}

func lookUpControlPlane(ctx context.Context, d *session.Session, cluster string) (map[string]any, error) {
	out := map[string]any{}
	var err error
	if out["hosts"], err = hostsWith[controlplane.ControlPlane](ctx, d, cluster, infraaws.RoleController); err != nil {
		return nil, err
	}
	if out["etcd"], err = refTo(ctx, d, NewEtcdCluster(), cluster); err != nil {
		return nil, err
	}
	out["lb"], err = lookUpBalancer(ctx, d, cluster)
	return out, err
}

// ControlPlaneOf returns the reference to the control plane of a cluster, as an argument.
func ControlPlaneOf(ctx context.Context, d *session.Session, cluster string) (any, error) {
	return refTo(ctx, d, NewControlPlane(), cluster)
}

// lookUpPool finds the only worker pool of a cluster. The id is "<cluster>/<name>".
func lookUpPool(ctx context.Context, d *session.Session, id string) (map[string]any, error) {
	cluster, name, _ := strings.Cut(id, "/")
	out := map[string]any{}
	if name != "" {
		out["name"] = name
	}
	var err error
	if out["hosts"], err = hostsWith[workerpool.Pool](ctx, d, cluster, infraaws.RoleWorker, infraaws.RoleController); err == nil {
		out["control_plane"], err = ControlPlaneOf(ctx, d, cluster)
	}
	return out, err
}

// lookUpLB finds a load balancer by the name of its cluster or by its Elastic IP. Machines and
// address have tags.
func lookUpLB(ctx context.Context, d *session.Session, id string) (map[string]any, error) {
	client, err := d.AWS(ctx)
	if err != nil {
		return nil, err
	}
	cluster := id
	if strings.HasPrefix(id, "eipalloc-") {
		a, err := awsaddress.Find(ctx, client, id, awsaddress.Spec{})
		if err != nil {
			return nil, err
		}
		cluster = a.Tags[infraaws.TagCluster]
	}
	machines, err := awsmachine.FindRunning(ctx, client, cluster)
	if err != nil {
		return nil, err
	}
	pods, err := awsmachine.Pods(ctx, client, machines)
	if err != nil {
		return nil, err
	}
	out := map[string]any{"pki": cluster}
	var controllers []any
	for _, found := range machines {
		switch host := hostArgument(ctx, found, pods[found.Name]); found.Role {
		case infraaws.RoleLoadBalancer:
			out["host"] = host
		case infraaws.RoleController:
			controllers = append(controllers, host)
		}
	}
	if out["host"] == nil || len(controllers) == 0 {
		return nil, errors.Join(infraaws.ErrNotFound, fmt.Errorf("cluster %s has no running machine of the role lb, or none of the role controller", cluster))
	}
	out["controllers"] = controllers
	return out, nil
}

// lookUpBalancer returns the reference to what is in front of a cluster's API servers: a k8s_lb or a k8s_nlb, or nil.
func lookUpBalancer(ctx context.Context, d *session.Session, cluster string) (any, error) {
	client, err := d.AWS(ctx)
	if err != nil {
		return nil, err
	}
	machines, err := awsmachine.FindRunning(ctx, client, cluster, infraaws.RoleLoadBalancer, infraaws.RoleController)
	if err != nil {
		return nil, err
	}
	var controllers []reference.Host
	for _, m := range machines {
		if m.Role == infraaws.RoleLoadBalancer {
			return refTo(ctx, d, NewLB(), cluster)
		}
		controllers = append(controllers, reference.HostOf(m))
	}
	names := map[string]types.String{}
	for _, which := range []string{balancer.Internal, balancer.Public} {
		found, err := balancer.Find(ctx, client, balancer.Spec{Cluster: cluster, Name: which})
		switch {
		case errors.Is(err, infraaws.ErrNotFound):
		case err != nil:
			return nil, err
		default:
			names[which] = types.StringValue(found.DNSName)
		}
	}
	private, exists := names[balancer.Internal]
	if !exists {
		return nil, nil
	}
	public, faces := names[balancer.Public]
	if !faces {
		public = private
	}
	return argumentOf(ctx, reference.OfLB.Value(ctx, reference.LBOfAWS(types.StringValue(cluster), reference.PrivateIPs(controllers), public, private))), nil
}

// hostsWith returns the running machines of a cluster on which a role is, by their names. If two resources have such a
// role in the cluster, nothing says which machines belong to which.
func hostsWith[S rollout.Role](ctx context.Context, d *session.Session, cluster string, among ...infraaws.MachineRole) ([]any, error) {
	client, err := d.AWS(ctx)
	if err != nil {
		return nil, err
	}
	machines, err := awsmachine.FindRunning(ctx, client, cluster, among...)
	if err != nil {
		return nil, err
	}
	var targets []fleet.Target
	for _, m := range machines {
		host := reference.HostOf(m)
		targets = append(targets, fleet.Target{Host: host.Remote(d), Node: host.Node()})
	}
	var role S
	kind := role.Definition().Name
	claims, err := d.Engine(ctx).Claims(ctx, kind, targets)
	if err != nil {
		return nil, fmt.Errorf("which machines of cluster %s have the %s is not known, since not all of them answer: %w", cluster, kind, err)
	}
	machines, err = withRole(machines, claims)
	if err != nil {
		return nil, fmt.Errorf("%s of cluster %s: %w", kind, cluster, err)
	}
	pods, err := awsmachine.Pods(ctx, client, machines)
	var out []any
	for _, m := range machines {
		out = append(out, hostArgument(ctx, m, pods[m.Name]))
	}
	return out, err
}

// withRole returns the machines that have the same role, by their claims.
func withRole(machines []awsmachine.Machine, claims map[string]string) (out []awsmachine.Machine, err error) {
	for _, m := range machines {
		claim := claims[m.Name]
		if claim == "" {
			continue
		}
		if len(out) > 0 && claim != claims[out[0].Name] {
			return nil, fmt.Errorf("there is more than one, on %s and on %s, and nothing says which one is meant: import it by a JSON object with its hosts", out[0].Name, m.Name)
		}
		out = append(out, m)
	}
	if len(out) == 0 {
		err = fmt.Errorf("on the running machines with the cluster's tags it %w", infraaws.ErrNotFound)
	}
	return out, err
}

// found is a role resource that can be looked up.
type found interface {
	resource.Resource
	lookAt(ctx context.Context, d *session.Session, id string) (tfsdk.State, diag.Diagnostics)
}

// lookAt returns the state that an import would have.
func (r *roleResource[M, S]) lookAt(ctx context.Context, d *session.Session, id string) (state tfsdk.State, diags diag.Diagnostics) {
	r.Session = d
	var described resource.SchemaResponse
	r.Schema(ctx, resource.SchemaRequest{}, &described)
	state.Schema = described.Schema
	if m, _ := r.find(ctx, id, &state, &diags); !diags.HasError() {
		diags.Append(state.Set(ctx, &m)...)
	}
	return state, diags
}

// refTo returns the reference to another role of the cluster, as an argument.
func refTo(ctx context.Context, d *session.Session, r resource.Resource, cluster string) (any, error) {
	state, diags := r.(found).lookAt(ctx, d, cluster)
	var ref types.Object
	if !diags.HasError() {
		diags.Append(state.GetAttribute(ctx, path.Root("ref"), &ref)...)
	}
	var errs []error
	for _, e := range diags.Errors() {
		errs = append(errs, fmt.Errorf("%s: %s", e.Summary(), e.Detail()))
	}
	return argumentOf(ctx, ref), errors.Join(errs...)
}

// hostArgument returns an EC2 machine with the network of its pods as a host in the JSON of an import id.
func hostArgument(ctx context.Context, m awsmachine.Machine, pods netip.Prefix) map[string]any {
	host := reference.HostOf(m)
	host.PodCIDR = tf.OptionalPrefix(pods)
	out, _ := argumentOf(ctx, reference.OfHost.Value(ctx, host)).(map[string]any)
	return out
}

// argumentOf returns a value as the JSON of an import id has it.
func argumentOf(ctx context.Context, v attr.Value) any {
	if v.IsNull() || v.IsUnknown() {
		return nil
	}
	each := func(elements []attr.Value) any {
		out := []any{}
		for _, e := range elements {
			out = append(out, argumentOf(ctx, e))
		}
		return out
	}
	named := func(elements map[string]attr.Value) any {
		out := map[string]any{}
		for name, e := range elements {
			out[name] = argumentOf(ctx, e)
		}
		return out
	}
	switch v := v.(type) {
	case types.Object:
		return named(v.Attributes())
	case types.Map:
		return named(v.Elements())
	case types.List:
		return each(v.Elements())
	case types.Set:
		return each(v.Elements())
	case types.Int64:
		return v.ValueInt64()
	case types.Bool:
		return v.ValueBool()
	case basetypes.StringValuable:
		s, _ := v.ToStringValue(ctx)
		return s.ValueString()
	}
	panic(fmt.Sprintf("no argument has the type %T", v))
}
