package provider

import (
	"context"
	"errors"
	"iter"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-log/tflog"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/foreign"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/parallel"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/timing"
)

// Server returns the provider as Terraform calls it.
func Server(p *Provider) tfprotov6.ProviderServer {
	server := providerserver.NewProtocol6(p)()
	if f, ok := server.(full); ok {
		return boundary{f, p, p.timings.recorder}
	}
	return server
}

// full is a provider with everything that this one has.
type full interface {
	tfprotov6.ProviderServer
	tfprotov6.ActionServer
	tfprotov6.ListResourceServer
}

// boundary is where Terraform's calls come in and answers go out. Every diagnostic is made fit to be
// shown here, whoever wrote it. A panic is an error of the call and not the end of the process, which
// works for other resources at the same time. The calls are counted.
type boundary struct {
	full
	provider *Provider
	recorder *timing.Recorder // nil if nobody wants to know
}

// summaryLimit is how many characters of a diagnostic's summary are shown.
const summaryLimit = 300

// through makes one call. diagnostics are those of an answer.
func through[Q, R any](ctx context.Context, b boundary, what string, q *Q, call func(context.Context, *Q) (*R, error), diagnostics func(*R) *[]*tfprotov6.Diagnostic) (*R, error) {
	ctx, end := b.recorder.Call(b.within(ctx), "Terraform "+what)
	defer end()
	var answer *R
	err := parallel.Safely(ctx, what, func() (err error) {
		answer, err = call(ctx, q)
		return err
	})
	var panicked *parallel.PanicError
	if errors.As(err, &panicked) {
		answer, err = new(R), nil
		*diagnostics(answer) = []*tfprotov6.Diagnostic{{Severity: tfprotov6.DiagnosticSeverityError, Summary: "The provider has a bug", Detail: panicked.Error()}}
	}
	if answer != nil {
		fit(*diagnostics(answer))
	}
	return answer, err
}

// within returns the context of a call. Where a panic was is written into Terraform's log, and waits have the provider's
// patience.
func (b boundary) within(ctx context.Context) context.Context {
	return parallel.WithLog(patience.With(ctx, b.provider.patience()), func(ctx context.Context, message, stack string) {
		tflog.Debug(ctx, message, map[string]any{"stack": stack})
	})
}

// fit makes diagnostics fit to be shown.
func fit(diagnostics []*tfprotov6.Diagnostic) {
	for _, d := range diagnostics {
		d.Summary, d.Detail = foreign.Line(d.Summary, summaryLimit), foreign.Text(d.Detail)
	}
}

func (b boundary) GetProviderSchema(ctx context.Context, q *tfprotov6.GetProviderSchemaRequest) (*tfprotov6.GetProviderSchemaResponse, error) {
	defer b.recorder.Start(ctx, "Terraform GetProviderSchema")()
	return b.full.GetProviderSchema(ctx, q)
}

func (b boundary) ValidateProviderConfig(ctx context.Context, q *tfprotov6.ValidateProviderConfigRequest) (*tfprotov6.ValidateProviderConfigResponse, error) {
	return through(ctx, b, "ValidateProviderConfig", q, b.full.ValidateProviderConfig,
		func(r *tfprotov6.ValidateProviderConfigResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

func (b boundary) ConfigureProvider(ctx context.Context, q *tfprotov6.ConfigureProviderRequest) (*tfprotov6.ConfigureProviderResponse, error) {
	return through(ctx, b, "ConfigureProvider", q, b.full.ConfigureProvider,
		func(r *tfprotov6.ConfigureProviderResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

func (b boundary) ValidateResourceConfig(ctx context.Context, q *tfprotov6.ValidateResourceConfigRequest) (*tfprotov6.ValidateResourceConfigResponse, error) {
	return through(ctx, b, "ValidateResourceConfig "+q.TypeName, q, b.full.ValidateResourceConfig,
		func(r *tfprotov6.ValidateResourceConfigResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

func (b boundary) UpgradeResourceState(ctx context.Context, q *tfprotov6.UpgradeResourceStateRequest) (*tfprotov6.UpgradeResourceStateResponse, error) {
	return through(ctx, b, "UpgradeResourceState "+q.TypeName, q, b.full.UpgradeResourceState,
		func(r *tfprotov6.UpgradeResourceStateResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

func (b boundary) ReadResource(ctx context.Context, q *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	return through(ctx, b, "ReadResource "+q.TypeName, q, b.full.ReadResource,
		func(r *tfprotov6.ReadResourceResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

func (b boundary) PlanResourceChange(ctx context.Context, q *tfprotov6.PlanResourceChangeRequest) (*tfprotov6.PlanResourceChangeResponse, error) {
	return through(ctx, b, "PlanResourceChange "+q.TypeName, q, b.full.PlanResourceChange,
		func(r *tfprotov6.PlanResourceChangeResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

// changes says that something is changed from now on, until the function that it returns is called.
func (b boundary) changes() (end func()) {
	forget := func() {
		for _, s := range b.provider.Sessions {
			s.Silence.Forget()
		}
	}
	forget()
	return forget
}

// ApplyResourceChange keeps the state of before if it fails without another one.
func (b boundary) ApplyResourceChange(ctx context.Context, q *tfprotov6.ApplyResourceChangeRequest) (*tfprotov6.ApplyResourceChangeResponse, error) {
	defer b.changes()()
	answer, err := through(ctx, b, "ApplyResourceChange "+q.TypeName, q, b.full.ApplyResourceChange,
		func(r *tfprotov6.ApplyResourceChangeResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
	if answer != nil && answer.NewState == nil {
		answer.NewState, answer.Private, answer.NewIdentity = q.PriorState, q.PlannedPrivate, q.PlannedIdentity
	}
	return answer, err
}

func (b boundary) ImportResourceState(ctx context.Context, q *tfprotov6.ImportResourceStateRequest) (*tfprotov6.ImportResourceStateResponse, error) {
	return through(ctx, b, "ImportResourceState "+q.TypeName, q, b.full.ImportResourceState,
		func(r *tfprotov6.ImportResourceStateResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

func (b boundary) ValidateDataResourceConfig(ctx context.Context, q *tfprotov6.ValidateDataResourceConfigRequest) (*tfprotov6.ValidateDataResourceConfigResponse, error) {
	return through(ctx, b, "ValidateDataResourceConfig "+q.TypeName, q, b.full.ValidateDataResourceConfig,
		func(r *tfprotov6.ValidateDataResourceConfigResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

func (b boundary) ReadDataSource(ctx context.Context, q *tfprotov6.ReadDataSourceRequest) (*tfprotov6.ReadDataSourceResponse, error) {
	return through(ctx, b, "ReadDataSource "+q.TypeName, q, b.full.ReadDataSource,
		func(r *tfprotov6.ReadDataSourceResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

func (b boundary) ValidateEphemeralResourceConfig(ctx context.Context, q *tfprotov6.ValidateEphemeralResourceConfigRequest) (*tfprotov6.ValidateEphemeralResourceConfigResponse, error) {
	return through(ctx, b, "ValidateEphemeralResourceConfig "+q.TypeName, q, b.full.ValidateEphemeralResourceConfig,
		func(r *tfprotov6.ValidateEphemeralResourceConfigResponse) *[]*tfprotov6.Diagnostic {
			return &r.Diagnostics
		})
}

func (b boundary) OpenEphemeralResource(ctx context.Context, q *tfprotov6.OpenEphemeralResourceRequest) (*tfprotov6.OpenEphemeralResourceResponse, error) {
	return through(ctx, b, "OpenEphemeralResource "+q.TypeName, q, b.full.OpenEphemeralResource,
		func(r *tfprotov6.OpenEphemeralResourceResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

func (b boundary) CallFunction(ctx context.Context, q *tfprotov6.CallFunctionRequest) (answer *tfprotov6.CallFunctionResponse, err error) {
	err = parallel.Safely(b.within(ctx), "function "+q.Name, func() (err error) {
		answer, err = b.full.CallFunction(ctx, q)
		return err
	})
	var panicked *parallel.PanicError
	if errors.As(err, &panicked) {
		answer, err = &tfprotov6.CallFunctionResponse{Error: &tfprotov6.FunctionError{Text: panicked.Error()}}, nil
	}
	if answer != nil && answer.Error != nil {
		answer.Error.Text = foreign.Text(answer.Error.Text)
	}
	return answer, err
}

func (b boundary) PlanAction(ctx context.Context, q *tfprotov6.PlanActionRequest) (*tfprotov6.PlanActionResponse, error) {
	return through(ctx, b, "PlanAction "+q.ActionType, q, b.full.PlanAction,
		func(r *tfprotov6.PlanActionResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

func (b boundary) ValidateActionConfig(ctx context.Context, q *tfprotov6.ValidateActionConfigRequest) (*tfprotov6.ValidateActionConfigResponse, error) {
	return through(ctx, b, "ValidateActionConfig "+q.ActionType, q, b.full.ValidateActionConfig,
		func(r *tfprotov6.ValidateActionConfigResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

func (b boundary) ValidateListResourceConfig(ctx context.Context, q *tfprotov6.ValidateListResourceConfigRequest) (*tfprotov6.ValidateListResourceConfigResponse, error) {
	return through(ctx, b, "ValidateListResourceConfig "+q.TypeName, q, b.full.ValidateListResourceConfig,
		func(r *tfprotov6.ValidateListResourceConfigResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

// ListResource answers with results, each with diagnostics of its own.
func (b boundary) ListResource(ctx context.Context, q *tfprotov6.ListResourceRequest) (*tfprotov6.ListResourceServerStream, error) {
	ctx = b.within(ctx)
	answer, err := b.full.ListResource(ctx, q)
	if answer != nil {
		results, what := answer.Results, "ListResource "+q.TypeName
		answer.Results = func(yield func(tfprotov6.ListResourceResult) bool) {
			defer b.recorder.Start(ctx, "Terraform "+what)()
			safely(ctx, what, results, yield, func(r tfprotov6.ListResourceResult) tfprotov6.ListResourceResult {
				fit(r.Diagnostics)
				return r
			}, func(d *tfprotov6.Diagnostic) tfprotov6.ListResourceResult {
				return tfprotov6.ListResourceResult{Diagnostics: []*tfprotov6.Diagnostic{d}}
			})
		}
	}
	return answer, err
}

// InvokeAction answers with events, and the last of them has diagnostics.
func (b boundary) InvokeAction(ctx context.Context, q *tfprotov6.InvokeActionRequest) (*tfprotov6.InvokeActionServerStream, error) {
	ctx = b.within(ctx)
	answer, err := b.full.InvokeAction(ctx, q)
	if answer != nil {
		events := fitEvents(ctx, "InvokeAction "+q.ActionType, answer.Events)
		answer.Events = func(yield func(tfprotov6.InvokeActionEvent) bool) {
			defer b.changes()()
			events(yield)
		}
	}
	return answer, err
}

func fitEvents(ctx context.Context, what string, events iter.Seq[tfprotov6.InvokeActionEvent]) iter.Seq[tfprotov6.InvokeActionEvent] {
	return func(yield func(tfprotov6.InvokeActionEvent) bool) {
		safely(ctx, what, events, yield, func(e tfprotov6.InvokeActionEvent) tfprotov6.InvokeActionEvent {
			switch kind := e.Type.(type) {
			case tfprotov6.ProgressInvokeActionEventType:
				e.Type = tfprotov6.ProgressInvokeActionEventType{Message: foreign.Text(kind.Message)}
			case tfprotov6.CompletedInvokeActionEventType:
				fit(kind.Diagnostics)
			}
			return e
		}, func(d *tfprotov6.Diagnostic) tfprotov6.InvokeActionEvent {
			return tfprotov6.InvokeActionEvent{Type: tfprotov6.CompletedInvokeActionEventType{Diagnostics: []*tfprotov6.Diagnostic{d}}}
		})
	}
}

// safely yields what a stream has, each made fit to be shown. A panic becomes the last of them.
func safely[T any](ctx context.Context, what string, stream iter.Seq[T], yield func(T) bool, fit func(T) T, bug func(*tfprotov6.Diagnostic) T) {
	ended := false
	err := parallel.Safely(ctx, what, func() error {
		for e := range stream {
			if ended = !yield(fit(e)); ended {
				return nil
			}
		}
		return nil
	})
	if err != nil && !ended {
		yield(bug(&tfprotov6.Diagnostic{Severity: tfprotov6.DiagnosticSeverityError, Summary: "The provider has a bug", Detail: err.Error()}))
	}
}
