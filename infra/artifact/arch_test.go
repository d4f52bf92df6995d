package artifact

import (
	"errors"
	"strings"
	"testing"
)

// TestForArchs: a set for two architectures has every file of each, and OfArch splits it.
func TestForArchs(t *testing.T) {
	c, err := NewCatalog("", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	set := func(c *Catalog) ([]Artifact, error) { return c.WorkerSet("1.36.4", "", "", "", true) }
	all, err := c.ForArchs([]string{AMD64, ARM64}, set)
	if !errors.Is(err, ErrUnknownChecksum) || len(all) != 10 {
		t.Fatalf("%d artifacts, %v", len(all), err)
	}
	for _, arch := range []string{AMD64, ARM64} {
		own := OfArch(all, arch)
		if len(own) != 5 {
			t.Errorf("%s: %d artifacts", arch, len(own))
		}
		for _, a := range own {
			if !strings.Contains(a.Path, arch) {
				t.Errorf("%s is for %s", a.Path, arch)
			}
		}
	}
	if len(OfArch(all, "")) != 5 {
		t.Error("an empty architecture does not stand for AMD64")
	}
	if _, err := c.ForArchs([]string{AMD64, ARM64}, func(c *Catalog) ([]Artifact, error) { return c.EtcdSet("latest") }); err == nil || errors.Is(err, ErrUnknownChecksum) {
		t.Errorf("an invalid version: %v", err)
	}
}
