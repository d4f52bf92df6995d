package machines_test

import (
	"strings"
	"testing"
	"time"

	labcloud "github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

// TestImageFilter: a machine is launched from the newest image with the name and of the owners. A newer one, or
// another filter, changes no machine that exists.
func TestImageFilter(t *testing.T) {
	t.Parallel()
	const debian, mine, foreign = "136693071363", "123456789012", "999999999999"
	day := func(n int) time.Time { return time.Date(2026, 3, n, 0, 0, 0, 0, time.UTC) }
	c := providertest.NewCloud(t, func(l *labcloud.Config) {
		l.Images = append(l.Images,
			ec2.Image{ID: "ami-00000000000000001", Name: "base-1", Release: "13", Created: day(1), Owner: mine},
			ec2.Image{ID: "ami-00000000000000009", Name: "base-9", Release: "13", Created: day(9), Owner: mine},
			ec2.Image{ID: "ami-00000000000000005", Name: "base-5", Release: "13", Created: day(5), Owner: mine},
			ec2.Image{ID: "ami-0000000000000000f", Name: "base-f", Release: "13", Created: day(20), Owner: foreign},
		)
	})
	network := c.Instance("k8s_network")
	network.Must(providertest.NetworkConfig())
	config := func(name string, owners ...any) providertest.Values {
		return providertest.Values{"name": "worker-0", "role": "worker", "network": network.Get("ref"), "image_filter": providertest.Values{"name": name, "owners": owners}}
	}
	for _, tt := range []struct {
		config providertest.Values
		want   string
	}{
		{config("base-*", "self"), "ami-00000000000000009"},
		{config("base-?", mine, debian), "ami-00000000000000009"},
		{config("base-5", mine), "ami-00000000000000005"},
		{config("base-*", foreign), "ami-0000000000000000f"},
	} {
		worker := c.Instance("k8s_machine")
		worker.Must(tt.config)
		worker.Converged(tt.config)
		if got := worker.Get("image_id"); got != tt.want {
			t.Errorf("%v: launched from %v, want %s", tt.config["image_filter"], got, tt.want)
		}
		other := config("debian-*", debian)
		if ch := worker.Plan(other); len(ch.Replace) > 0 {
			t.Errorf("another filter would replace the machine because of %v", ch.Replace)
		}
		worker.Must(other)
		worker.Converged(other)
		if got := worker.Get("image_id"); got != tt.want {
			t.Errorf("after another filter it has %v", got)
		}
		if said := worker.Dismiss().Failure(); said != "" {
			t.Fatal(said)
		}
	}

	worker := c.Instance("k8s_machine")
	ch := worker.CarryOut(worker.Plan(config("base-x*", "self", debian)))
	if got := strings.Join(strings.Fields(ch.Failure()), " "); !strings.Contains(got, `no images named "base-x*" of 136693071363, self in region us-east-1`) || !at(ch, "image_filter") {
		t.Errorf("no image: %q", got)
	}
	for _, tt := range []struct {
		config providertest.Values
		says   string
	}{
		{config("base-*"), "at least 1"},
		{config("", "self"), "at least 1"},
		{config("base-*", "debian"), "neither the id of an AWS account"},
		{providertest.With(config("base-*", "self"), providertest.Values{"ami": "ami-00000000000000001"}), "Both ami and image_filter"},
	} {
		if ch := c.Instance("k8s_machine").Plan(tt.config); !strings.Contains(ch.Failure(), tt.says) || !at(ch, "image_filter") {
			t.Errorf("%v: %q, want %q", tt.config["image_filter"], ch.Failure(), tt.says)
		}
	}
	if said := c.Instance("k8s_machine").Plan(providertest.With(config("x"), providertest.Values{"image_filter": providertest.Unknown})).Failure(); said != "" {
		t.Errorf("unknown: %q", said)
	}
}
