package provider

import (
	"strings"
	"testing"
	"time"

	labcloud "github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/ec2"
)

// TestImageFilter: a machine is launched from the newest image with the name and of the owners. A newer one, or
// another filter, changes no machine that exists.
func TestImageFilter(t *testing.T) {
	t.Parallel()
	const debian, mine, foreign = "136693071363", "123456789012", "999999999999"
	day := func(n int) time.Time { return time.Date(2026, 3, n, 0, 0, 0, 0, time.UTC) }
	c := newCloud(t, func(l *labcloud.Config) {
		l.Images = append(l.Images,
			ec2.Image{ID: "ami-00000000000000001", Name: "base-1", Release: "13", Created: day(1), Owner: mine},
			ec2.Image{ID: "ami-00000000000000009", Name: "base-9", Release: "13", Created: day(9), Owner: mine},
			ec2.Image{ID: "ami-00000000000000005", Name: "base-5", Release: "13", Created: day(5), Owner: mine},
			ec2.Image{ID: "ami-0000000000000000f", Name: "base-f", Release: "13", Created: day(20), Owner: foreign},
		)
	})
	network := c.instance("k8s_network")
	network.must(networkConfig())
	config := func(name string, owners ...any) values {
		return values{"name": "worker-0", "role": "worker", "network": network.get("ref"), "image_filter": values{"name": name, "owners": owners}}
	}
	for _, tt := range []struct {
		config values
		want   string
	}{
		{config("base-*", "self"), "ami-00000000000000009"},
		{config("base-?", mine, debian), "ami-00000000000000009"},
		{config("base-5", mine), "ami-00000000000000005"},
		{config("base-*", foreign), "ami-0000000000000000f"},
	} {
		worker := c.instance("k8s_machine")
		worker.must(tt.config)
		worker.settled(tt.config)
		if got := worker.get("image_id"); got != tt.want {
			t.Errorf("%v: launched from %v, want %s", tt.config["image_filter"], got, tt.want)
		}
		other := config("debian-*", debian)
		if ch := worker.plan(other); len(ch.replace) > 0 {
			t.Errorf("another filter would replace the machine because of %v", ch.replace)
		}
		worker.must(other)
		worker.settled(other)
		if got := worker.get("image_id"); got != tt.want {
			t.Errorf("after another filter it has %v", got)
		}
		if said := worker.dismiss().failure(); said != "" {
			t.Fatal(said)
		}
	}

	worker := c.instance("k8s_machine")
	ch := worker.carryOut(worker.plan(config("base-x*", "self", debian)))
	if got := strings.Join(strings.Fields(ch.failure()), " "); !strings.Contains(got, `no images named "base-x*" of 136693071363, self in region us-east-1`) || !at(ch, "image_filter") {
		t.Errorf("no image: %q", got)
	}
	for _, tt := range []struct {
		config values
		says   string
	}{
		{config("base-*"), "at least 1"},
		{config("", "self"), "at least 1"},
		{config("base-*", "debian"), "neither the id of an AWS account"},
		{with(config("base-*", "self"), values{"ami": "ami-00000000000000001"}), "Both ami and image_filter"},
	} {
		if ch := c.instance("k8s_machine").plan(tt.config); !strings.Contains(ch.failure(), tt.says) || !at(ch, "image_filter") {
			t.Errorf("%v: %q, want %q", tt.config["image_filter"], ch.failure(), tt.says)
		}
	}
	if said := c.instance("k8s_machine").plan(with(config("x"), values{"image_filter": unknown})).failure(); said != "" {
		t.Errorf("unknown: %q", said)
	}
}
