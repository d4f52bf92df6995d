package provider

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
)

// stub answers calls as it is told.
type stub struct {
	full
	answer func() []*tfprotov6.Diagnostic
}

func (s stub) ReadResource(context.Context, *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	return &tfprotov6.ReadResourceResponse{Diagnostics: s.answer()}, nil
}

func (s stub) ApplyResourceChange(context.Context, *tfprotov6.ApplyResourceChangeRequest) (*tfprotov6.ApplyResourceChangeResponse, error) {
	return &tfprotov6.ApplyResourceChangeResponse{Diagnostics: s.answer()}, nil
}

func (s stub) CallFunction(context.Context, *tfprotov6.CallFunctionRequest) (*tfprotov6.CallFunctionResponse, error) {
	return &tfprotov6.CallFunctionResponse{Error: &tfprotov6.FunctionError{Text: s.answer()[0].Detail}}, nil
}

func (s stub) InvokeAction(context.Context, *tfprotov6.InvokeActionRequest) (*tfprotov6.InvokeActionServerStream, error) {
	return &tfprotov6.InvokeActionServerStream{Events: func(yield func(tfprotov6.InvokeActionEvent) bool) {
		if yield(tfprotov6.InvokeActionEvent{Type: tfprotov6.ProgressInvokeActionEventType{Message: "\x1b[31msaved"}}) {
			yield(tfprotov6.InvokeActionEvent{Type: tfprotov6.CompletedInvokeActionEventType{Diagnostics: s.answer()}})
		}
	}}, nil
}

func (s stub) ListResource(context.Context, *tfprotov6.ListResourceRequest) (*tfprotov6.ListResourceServerStream, error) {
	return &tfprotov6.ListResourceServerStream{Results: func(yield func(tfprotov6.ListResourceResult) bool) {
		yield(tfprotov6.ListResourceResult{Diagnostics: s.answer()})
	}}, nil
}

// TestDiagnosticsAreFitToBeShown: whatever a diagnostic quotes, it controls no terminal, reverses
// no text and has a limited length.
func TestDiagnosticsAreFitToBeShown(t *testing.T) {
	b := boundary{provider: New("test"), full: stub{answer: func() []*tfprotov6.Diagnostic {
		return []*tfprotov6.Diagnostic{{Summary: "Pod \x1b[31mweb\x1b[0m\nis \u202edown", Detail: "said:\n\x1b]0;title\x07" + strings.Repeat("x", 1<<20)}}
	}}}
	check := func(call string, d *tfprotov6.Diagnostic) {
		if d.Summary != `Pod web is \u202edown` || !strings.HasPrefix(d.Detail, "said:\nxxx") || len(d.Detail) > 16<<10 {
			t.Errorf("%s: %q, %d bytes: %.100q", call, d.Summary, len(d.Detail), d.Detail)
		}
	}
	read, _ := b.ReadResource(t.Context(), &tfprotov6.ReadResourceRequest{})
	check("read", read.Diagnostics[0])
	applied, _ := b.ApplyResourceChange(t.Context(), &tfprotov6.ApplyResourceChangeRequest{})
	check("apply", applied.Diagnostics[0])
	if called, _ := b.CallFunction(t.Context(), &tfprotov6.CallFunctionRequest{}); strings.Contains(called.Error.Text, "\x1b") || len(called.Error.Text) > 16<<10 {
		t.Errorf("function: %.100q", called.Error.Text)
	}
	invoked, _ := b.InvokeAction(t.Context(), &tfprotov6.InvokeActionRequest{})
	for _, e := range slices.Collect(invoked.Events) {
		switch kind := e.Type.(type) {
		case tfprotov6.ProgressInvokeActionEventType:
			if kind.Message != "saved" {
				t.Errorf("action: %q", kind.Message)
			}
		case tfprotov6.CompletedInvokeActionEventType:
			check("action", kind.Diagnostics[0])
		}
	}
	listed, _ := b.ListResource(t.Context(), &tfprotov6.ListResourceRequest{})
	check("list", slices.Collect(listed.Results)[0].Diagnostics[0])
}

// TestPanicOfACall: the process goes on, and an apply keeps the previous state.
func TestPanicOfACall(t *testing.T) {
	var list []*tfprotov6.Diagnostic
	at := slices.IndexFunc(list, func(*tfprotov6.Diagnostic) bool { return true })
	b := boundary{provider: New("test"), full: stub{answer: func() []*tfprotov6.Diagnostic { return list[at : at+1] }}}
	check := func(call string, diagnostics []*tfprotov6.Diagnostic) {
		if len(diagnostics) != 1 || diagnostics[0].Severity != tfprotov6.DiagnosticSeverityError || !strings.Contains(diagnostics[0].Detail, "a bug of this program") {
			t.Errorf("%s: %v", call, diagnostics)
		}
	}
	read, err := b.ReadResource(t.Context(), &tfprotov6.ReadResourceRequest{TypeName: "k8s_machine"})
	if err != nil {
		t.Fatal(err)
	}
	check("read", read.Diagnostics)
	prior := &tfprotov6.DynamicValue{JSON: []byte(`{}`)}
	applied, err := b.ApplyResourceChange(t.Context(), &tfprotov6.ApplyResourceChangeRequest{PriorState: prior, PlannedPrivate: []byte("record")})
	if err != nil || applied.NewState != prior || string(applied.Private) != "record" {
		t.Fatalf("%v, %v", applied, err)
	}
	check("apply", applied.Diagnostics)
	called, err := b.CallFunction(t.Context(), &tfprotov6.CallFunctionRequest{Name: "x"})
	if err != nil || called.Error == nil {
		t.Errorf("%v, %v", called, err)
	}
	invoked, err := b.InvokeAction(t.Context(), &tfprotov6.InvokeActionRequest{})
	if err != nil {
		t.Fatal(err)
	}
	events := slices.Collect(invoked.Events)
	if last, ok := events[len(events)-1].Type.(tfprotov6.CompletedInvokeActionEventType); !ok {
		t.Errorf("%v", events)
	} else {
		check("action", last.Diagnostics)
	}
	listed, err := b.ListResource(t.Context(), &tfprotov6.ListResourceRequest{})
	if err != nil {
		t.Fatal(err)
	}
	check("list", slices.Collect(listed.Results)[0].Diagnostics)
}
