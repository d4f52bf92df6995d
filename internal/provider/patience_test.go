package provider_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/fleet"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/maintenance"
	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/patience"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestPatience: the argument, or else the environment, is a number from 1 to 100.
func TestPatience(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		argument    any
		environment string
		want        float64
		refused     string
	}{
		"neither":                       {nil, "", 1, ""},
		"the argument":                  {2.5, "", 2.5, ""},
		"the environment":               {nil, "4", 4, ""},
		"the argument wins":             {2, "4", 2, ""},
		"not known yet":                 {providertest.Unknown, "4", 1, ""},
		"zero":                          {0, "", 0, "0 is not a number between 1 and 100"},
		"negative":                      {-3, "", 0, "-3 is not a number between 1 and 100"},
		"less":                          {0.5, "", 0, "0.5 is not a number between 1 and 100"},
		"too much":                      {101, "", 0, "101 is not a number between 1 and 100"},
		"a text in the environment":     {nil, "slow", 0, `K8S_PATIENCE in the environment is "slow", and must be a number between 1 and 100`},
		"a duration in the environment": {nil, "30m", 0, `K8S_PATIENCE in the environment is "30m"`},
		"zero in the environment":       {nil, "0", 0, "K8S_PATIENCE in the environment: 0 is not a number"},
		"infinity in the environment":   {nil, "Inf", 0, "K8S_PATIENCE in the environment"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := provider.New("test")
			p.Environment.Getenv = func(variable string) string { return map[string]string{"K8S_PATIENCE": tt.environment}[variable] }
			said := ""
			for _, d := range providertest.Open(t, p).Configure(providertest.Values{"patience": tt.argument}) {
				said += d.Attribute.String() + " " + d.Summary + ": " + d.Detail
			}
			switch {
			case tt.refused != "" && (!strings.Contains(said, tt.refused) || !strings.Contains(said, `"patience"`)):
				t.Errorf("it says %q", said)
			case tt.refused == "" && (said != "" || p.Sessions[0].Patience != tt.want):
				t.Errorf("patience %v, %q", p.Sessions, said)
			}
		})
	}
}

// TestPatienceLengthensWaits: the factor reaches every single wait of an operation.
func TestPatienceLengthensWaits(t *testing.T) {
	t.Parallel()
	c := providertest.NewCloud(t)
	c.More = providertest.Values{"patience": 3}
	c = c.Process(t)
	network, worker := c.Instance("k8s_network"), c.Instance("k8s_machine")
	network.Must(providertest.NetworkConfig())
	worker.Must(providertest.WorkerConfig(network))
	var wait time.Duration
	*c.Duty = func(ctx context.Context, _ fleet.Target) (*maintenance.Duty, error) {
		wait = patience.Of(ctx, time.Minute)
		return &maintenance.Duty{}, nil
	}
	if said := worker.Dismiss().Failure(); said != "" || wait != 3*time.Minute {
		t.Errorf("a wait of a minute takes %s; %s", wait, said)
	}
}
