package addon

import (
	"errors"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
)

func TestHiddenObjects(t *testing.T) {
	secret := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "b", "namespace": "x"}, "data": map[string]any{"password": "hunter2", "longer": "hunter22"},
	}}
	a := Addon{Objects: []*unstructured.Unstructured{secret}, Hidden: []*unstructured.Unstructured{secret}}
	about := func(subject string) finding.Finding {
		return finding.Finding{Subject: subject, Kind: finding.Field, Target: "data.password", Problem: finding.Value, Found: "guessed", Wanted: "hunter2"}
	}
	found := a.hide([]finding.Finding{about("ConfigMap x/b"), about("ConfigMap x/c")})
	if found[0].Found != finding.Hidden || found[0].Wanted != finding.Hidden || found[1].Found != "guessed" {
		t.Errorf("findings are %v", found)
	}
	said := errors.New(`ConfigMap b is invalid: data.password: "hunter2", data.longer: "hunter22"`)
	err := a.hideIn(said)
	if strings.Contains(err.Error(), "hunter") || !strings.Contains(err.Error(), "ConfigMap b is invalid") || !errors.Is(err, said) {
		t.Errorf("the error is %v", err)
	}
	if err := a.hideIn(nil); err != nil {
		t.Errorf("no error has become %v", err)
	}
	if err := (Addon{}).hideIn(said); !errors.Is(err, said) || err.Error() != said.Error() {
		t.Errorf("the error is %v", err)
	}
}
