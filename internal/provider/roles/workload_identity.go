package roles

import (
	"context"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/artifact"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/component"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/argument"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/reference"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// issuerConversion converts the argument to the issuer.
var issuerConversion = conversion[types.Object, string]{
	toSpec: func(ctx context.Context, o types.Object) string {
		var ignored diag.Diagnostics
		m, _ := reference.OfWorkloadIdentity.Read(ctx, o, &ignored)
		return m.Issuer.ValueString()
	},
	fromSpec: func(ctx context.Context, issuer string) types.Object {
		if issuer == "" {
			return types.ObjectNull(reference.OfWorkloadIdentity.Type().AttrTypes)
		}
		return reference.OfWorkloadIdentity.Value(ctx, reference.WorkloadIdentity{Issuer: types.StringValue(issuer)})
	},
}

// issuing returns what decides about issuers; false if it is not known.
func (m *controlPlaneModel) issuing(ctx context.Context, diags *diag.Diagnostics) (component.APIServerSpec, component.Cluster, bool) {
	identity, _ := reference.OfWorkloadIdentity.Read(ctx, m.WorkloadIdentity, diags)
	s := component.APIServerSpec{Issuer: identity.Issuer.ValueString(), Args: extraArgs(m.ExtraArgs, artifact.KubeAPIServer)}
	c := component.Cluster{Domain: m.Domain.ValueString()}
	flags, _ := m.ExtraArgs.Attributes()[argsName(artifact.KubeAPIServer)].(types.Dynamic)
	known := tf.AllKnown(m.WorkloadIdentity, m.Domain) && !m.ExtraArgs.IsUnknown() && !flags.IsUnknown() && !flags.IsUnderlyingValueUnknown()
	return s, c, known && !slices.Contains(s.Issuers(c), "") // an unknown flag is empty
}

// guardIssuer refuses a change of the issuer that would have API servers refuse tokens which are in use.
func guardIssuer(ctx context.Context, plan, prior *controlPlaneModel, diags *diag.Diagnostics) {
	at := path.Root("workload_identity")
	if plan.WorkloadIdentity.Equal(prior.WorkloadIdentity) {
		at = path.Root("extra_args")
	}
	former, cluster, known := prior.issuing(ctx, diags)
	next, _, planned := plan.issuing(ctx, diags)
	switch servers := max(len(prior.Hosts.Elements()), len(plan.Hosts.Elements())); {
	case !known:
	case planned:
		for _, e := range next.CheckIssuers(cluster, former.Issuers(cluster), servers) {
			diags.AddAttributeError(at, e.Problem, argument.Upper(e.Err.Error()))
		}
	case servers > 1:
		diags.AddAttributeError(at, "The issuer of a running cluster must be known to the plan", "It is known only after the apply, and a plan checks that all API servers accept an issuer before it signs. "+
			"Apply what it depends on first, with -target.")
	}
}
