package roles

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework/diag"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/rollout"
)

// What tests that run the whole provider see of this package.

type (
	EtcdModel                           = etcdModel
	EtcdBackupModel                     = etcdBackupModel
	ControlPlaneModel                   = controlPlaneModel
	WorkerPoolModel                     = workerPoolModel
	LBModel                             = lbModel
	Place                               = place
	RoleRecord                          = roleRecord
	Settings[M, S any]                  = settings[M, S]
	RoleResource[M any, S rollout.Role] = roleResource[M, S]
)

var (
	EtcdSettings         = etcdSettings
	EtcdBackupSettings   = etcdBackupSettings
	ControlPlaneSettings = controlPlaneSettings
	WorkerPoolSettings   = workerPoolSettings
	LBSettings           = lbSettings
	CompleteEtcd         = completeEtcd
	CompleteLB           = completeLB
	ExtraArgs            = extraArgs
	ObjectValue          = objectValue
	ForgetTerminated     = forgetTerminated
	FlagsValue           = workerPrograms.value
	OfTaint              = taint
)

func (all settings[M, S]) FromSpec(ctx context.Context, s *S, m *M) { all.fromSpec(ctx, s, m) }

// Count makes n count how often a setting is converted.
func (all settings[M, S]) Count(name string, n *int) {
	one := all[name]
	convert := one.toSpec
	one.toSpec = func(ctx context.Context, m *M, s *S) {
		*n++
		convert(ctx, m, s)
	}
	all[name] = one
}

func (one setting[M, S]) ToSpec(ctx context.Context, m *M, s *S) { one.toSpec(ctx, m, s) }

func (one setting[M, S]) FromSpec(ctx context.Context, s *S, m *M) { one.fromSpec(ctx, s, m) }

func (r *roleResource[M, S]) Name() string { return r.kind.name }

func (r *roleResource[M, S]) Needs() []string { return r.kind.importer.needs }

func (r *roleResource[M, S]) Settings() Settings[M, S] { return r.kind.settings }

func (r *roleResource[M, S]) Outputs(ctx context.Context, m *M, diags *diag.Diagnostics) {
	r.kind.outputs(ctx, m, diags)
}

func (r *roleResource[M, S]) Spec(ctx context.Context, m *M, diags *diag.Diagnostics) S {
	return r.spec(ctx, m, diags)
}

func (r *roleResource[M, S]) SpecWithoutDownloads(ctx context.Context, m *M, diags *diag.Diagnostics) S {
	return r.specWithoutDownloads(ctx, m, diags)
}
