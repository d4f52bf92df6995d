package keys_test

import (
	"testing"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/providertest"
)

func TestMain(m *testing.M) { providertest.RunTests(m) }
