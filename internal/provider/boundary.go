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
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/timing"
)

// Server returns the provider as Terraform calls it.
func Server(p *Provider) tfprotov6.ProviderServer {
	server := providerserver.NewProtocol6(p)()
	if full, ok := server.(tfprotov6.ProviderServerWithActions); ok { //nolint:staticcheck // its methods are in no other interface yet
		return boundary{full, p, p.timings.recorder}
	}
	return server
}

// boundary is where Terraform's calls come in and answers go out. Every diagnostic is made fit to be
// shown here, whoever wrote it. A panic is an error of the call and not the end of the process, which
// works for other resources at the same time. The calls are counted.
type boundary struct {
	tfprotov6.ProviderServerWithActions
	provider *Provider
	recorder *timing.Recorder // nil if nobody wants to know
}

// summaryLimit is how many characters of a diagnostic's summary are shown.
const summaryLimit = 300

// through makes one call. diagnostics are those of an answer.
func through[Q, R any](ctx context.Context, b boundary, what string, q *Q, call func(context.Context, *Q) (*R, error), diagnostics func(*R) *[]*tfprotov6.Diagnostic) (*R, error) {
	defer b.recorder.Start("Terraform " + what)()
	var answer *R
	err := parallel.Safely(logPanics(ctx), what, func() (err error) {
		answer, err = call(b.patient(logPanics(ctx)), q)
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

// logPanics writes where a panic was into Terraform's log.
func logPanics(ctx context.Context) context.Context {
	return parallel.WithLog(ctx, func(ctx context.Context, message, stack string) {
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
	defer b.recorder.Start("Terraform GetProviderSchema")()
	return b.ProviderServerWithActions.GetProviderSchema(ctx, q)
}

func (b boundary) ValidateProviderConfig(ctx context.Context, q *tfprotov6.ValidateProviderConfigRequest) (*tfprotov6.ValidateProviderConfigResponse, error) {
	return through(ctx, b, "ValidateProviderConfig", q, b.ProviderServerWithActions.ValidateProviderConfig,
		func(r *tfprotov6.ValidateProviderConfigResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

func (b boundary) ConfigureProvider(ctx context.Context, q *tfprotov6.ConfigureProviderRequest) (*tfprotov6.ConfigureProviderResponse, error) {
	return through(ctx, b, "ConfigureProvider", q, b.ProviderServerWithActions.ConfigureProvider,
		func(r *tfprotov6.ConfigureProviderResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

func (b boundary) ValidateResourceConfig(ctx context.Context, q *tfprotov6.ValidateResourceConfigRequest) (*tfprotov6.ValidateResourceConfigResponse, error) {
	return through(ctx, b, "ValidateResourceConfig "+q.TypeName, q, b.ProviderServerWithActions.ValidateResourceConfig,
		func(r *tfprotov6.ValidateResourceConfigResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

func (b boundary) UpgradeResourceState(ctx context.Context, q *tfprotov6.UpgradeResourceStateRequest) (*tfprotov6.UpgradeResourceStateResponse, error) {
	return through(ctx, b, "UpgradeResourceState "+q.TypeName, q, b.ProviderServerWithActions.UpgradeResourceState,
		func(r *tfprotov6.UpgradeResourceStateResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

func (b boundary) ReadResource(ctx context.Context, q *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	return through(ctx, b, "ReadResource "+q.TypeName, q, b.ProviderServerWithActions.ReadResource,
		func(r *tfprotov6.ReadResourceResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

func (b boundary) PlanResourceChange(ctx context.Context, q *tfprotov6.PlanResourceChangeRequest) (*tfprotov6.PlanResourceChangeResponse, error) {
	return through(ctx, b, "PlanResourceChange "+q.TypeName, q, b.ProviderServerWithActions.PlanResourceChange,
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
	answer, err := through(ctx, b, "ApplyResourceChange "+q.TypeName, q, b.ProviderServerWithActions.ApplyResourceChange,
		func(r *tfprotov6.ApplyResourceChangeResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
	if answer != nil && answer.NewState == nil {
		answer.NewState, answer.Private = q.PriorState, q.PlannedPrivate
	}
	return answer, err
}

func (b boundary) ImportResourceState(ctx context.Context, q *tfprotov6.ImportResourceStateRequest) (*tfprotov6.ImportResourceStateResponse, error) {
	return through(ctx, b, "ImportResourceState "+q.TypeName, q, b.ProviderServerWithActions.ImportResourceState,
		func(r *tfprotov6.ImportResourceStateResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

func (b boundary) ValidateDataResourceConfig(ctx context.Context, q *tfprotov6.ValidateDataResourceConfigRequest) (*tfprotov6.ValidateDataResourceConfigResponse, error) {
	return through(ctx, b, "ValidateDataResourceConfig "+q.TypeName, q, b.ProviderServerWithActions.ValidateDataResourceConfig,
		func(r *tfprotov6.ValidateDataResourceConfigResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

func (b boundary) ReadDataSource(ctx context.Context, q *tfprotov6.ReadDataSourceRequest) (*tfprotov6.ReadDataSourceResponse, error) {
	return through(ctx, b, "ReadDataSource "+q.TypeName, q, b.ProviderServerWithActions.ReadDataSource,
		func(r *tfprotov6.ReadDataSourceResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

func (b boundary) ValidateEphemeralResourceConfig(ctx context.Context, q *tfprotov6.ValidateEphemeralResourceConfigRequest) (*tfprotov6.ValidateEphemeralResourceConfigResponse, error) {
	return through(ctx, b, "ValidateEphemeralResourceConfig "+q.TypeName, q, b.ProviderServerWithActions.ValidateEphemeralResourceConfig,
		func(r *tfprotov6.ValidateEphemeralResourceConfigResponse) *[]*tfprotov6.Diagnostic {
			return &r.Diagnostics
		})
}

func (b boundary) OpenEphemeralResource(ctx context.Context, q *tfprotov6.OpenEphemeralResourceRequest) (*tfprotov6.OpenEphemeralResourceResponse, error) {
	return through(ctx, b, "OpenEphemeralResource "+q.TypeName, q, b.ProviderServerWithActions.OpenEphemeralResource,
		func(r *tfprotov6.OpenEphemeralResourceResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

func (b boundary) CallFunction(ctx context.Context, q *tfprotov6.CallFunctionRequest) (answer *tfprotov6.CallFunctionResponse, err error) {
	err = parallel.Safely(logPanics(ctx), "function "+q.Name, func() (err error) {
		answer, err = b.ProviderServerWithActions.CallFunction(ctx, q)
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
	return through(ctx, b, "PlanAction "+q.ActionType, q, b.ProviderServerWithActions.PlanAction,
		func(r *tfprotov6.PlanActionResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

func (b boundary) ValidateActionConfig(ctx context.Context, q *tfprotov6.ValidateActionConfigRequest) (*tfprotov6.ValidateActionConfigResponse, error) {
	return through(ctx, b, "ValidateActionConfig "+q.ActionType, q, b.ProviderServerWithActions.ValidateActionConfig,
		func(r *tfprotov6.ValidateActionConfigResponse) *[]*tfprotov6.Diagnostic { return &r.Diagnostics })
}

// InvokeAction answers with events, and the last of them has diagnostics.
func (b boundary) InvokeAction(ctx context.Context, q *tfprotov6.InvokeActionRequest) (*tfprotov6.InvokeActionServerStream, error) {
	ctx = b.patient(logPanics(ctx))
	answer, err := b.ProviderServerWithActions.InvokeAction(ctx, q)
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
		ended := false
		err := parallel.Safely(ctx, what, func() error {
			for e := range events {
				switch kind := e.Type.(type) {
				case tfprotov6.ProgressInvokeActionEventType:
					e.Type = tfprotov6.ProgressInvokeActionEventType{Message: foreign.Text(kind.Message)}
				case tfprotov6.CompletedInvokeActionEventType:
					fit(kind.Diagnostics)
				}
				if ended = !yield(e); ended {
					return nil
				}
			}
			return nil
		})
		if err != nil && !ended {
			yield(tfprotov6.InvokeActionEvent{Type: tfprotov6.CompletedInvokeActionEventType{Diagnostics: []*tfprotov6.Diagnostic{
				{Severity: tfprotov6.DiagnosticSeverityError, Summary: "The provider has a bug", Detail: err.Error()}}}})
		}
	}
}
