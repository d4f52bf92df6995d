package provider

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	fwprovider "github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6/tf6server"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/timing"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
)

const (
	// timingsVariable turns on the table of where a run's time goes.
	timingsVariable = "K8S_TIMINGS"
	// timingsFile is where the tables go if the variable is "1". It is a file because Terraform shows
	// what a provider prints only in its own log, and that only with TF_LOG.
	timingsFile = "k8s-timings.txt"
)

// timings is the table of where the time of this process goes.
type timings struct {
	recorder *timing.Recorder // nil if nobody wants to know
	path     string
	began    time.Time
}

// startTimings reads the environment, and notes what the process has used until now.
func startTimings(getenv func(string) string) timings {
	t := timings{path: file.AtHome(getenv(timingsVariable), getenv("HOME")), began: time.Now()}
	switch t.path {
	case "", "0":
		return timings{}
	case "1":
		t.path = timingsFile
	}
	t.recorder = timing.New()
	cpu, _ := usage()
	t.recorder.Add("start initialization", cpu)
	return t
}

// write appends the table to the file, in one write: several processes of the provider may end at
// the same time.
func (t timings) write(version string) error {
	if t.recorder == nil {
		return nil
	}
	f, err := os.OpenFile(t.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("%s: %w", timingsVariable, err)
	}
	cpu, memory := usage()
	_, err = fmt.Fprintf(f, "%s provider %s, process %d: %.2f s, CPU %.2f s, memory %d MiB\n%s\n",
		t.began.UTC().Format(time.RFC3339), version, os.Getpid(), time.Since(t.began).Seconds(), cpu.Seconds(), memory>>20, t.recorder.Table())
	return errors.Join(err, f.Close())
}

// serve is providerserver.Serve, with Terraform's own calls in the table.
func (t timings) serve(p fwprovider.Provider, address string) error {
	return tf6server.Serve(address, func() tfprotov6.ProviderServer {
		server := providerserver.NewProtocol6(p)()
		if full, ok := server.(tfprotov6.ProviderServerWithActions); ok { //nolint:staticcheck // its methods are in no other interface yet
			return timedServer{full, t.recorder}
		}
		return server
	})
}

// timedServer counts the calls of Terraform.
type timedServer struct {
	tfprotov6.ProviderServerWithActions
	recorder *timing.Recorder
}

func (s timedServer) GetProviderSchema(ctx context.Context, r *tfprotov6.GetProviderSchemaRequest) (*tfprotov6.GetProviderSchemaResponse, error) {
	defer s.recorder.Start("Terraform GetProviderSchema")()
	return s.ProviderServerWithActions.GetProviderSchema(ctx, r)
}

func (s timedServer) ConfigureProvider(ctx context.Context, r *tfprotov6.ConfigureProviderRequest) (*tfprotov6.ConfigureProviderResponse, error) {
	defer s.recorder.Start("Terraform ConfigureProvider")()
	return s.ProviderServerWithActions.ConfigureProvider(ctx, r)
}

func (s timedServer) ReadResource(ctx context.Context, r *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	defer s.recorder.Start("Terraform ReadResource " + r.TypeName)()
	return s.ProviderServerWithActions.ReadResource(ctx, r)
}

func (s timedServer) PlanResourceChange(ctx context.Context, r *tfprotov6.PlanResourceChangeRequest) (*tfprotov6.PlanResourceChangeResponse, error) {
	defer s.recorder.Start("Terraform PlanResourceChange " + r.TypeName)()
	return s.ProviderServerWithActions.PlanResourceChange(ctx, r)
}

func (s timedServer) ApplyResourceChange(ctx context.Context, r *tfprotov6.ApplyResourceChangeRequest) (*tfprotov6.ApplyResourceChangeResponse, error) {
	defer s.recorder.Start("Terraform ApplyResourceChange " + r.TypeName)()
	return s.ProviderServerWithActions.ApplyResourceChange(ctx, r)
}
