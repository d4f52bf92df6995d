package addon

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
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

// TestHiddenForms: a value is hidden in every form in which an API server quotes it.
func TestHiddenForms(t *testing.T) {
	text := "hunter\"2\"\n<back\\slash>\té"
	asJSON, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	secret := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "b", "namespace": "x"},
		"stringData": map[string]any{"text": text, "pin": int64(12345678), "share": 1234567890.5, "few": int64(7)},
	}}
	a := Addon{Objects: []*unstructured.Unstructured{secret}, Hidden: []*unstructured.Unstructured{secret}}
	for _, quoted := range []string{
		text, strconv.Quote(text), string(asJSON), fmt.Sprintf("%#v", text),
		"&value.valueUnstructured{Value:12345678}", fmt.Sprint(1234567890.5), "1234567890.5",
	} {
		said := a.hideIn(fmt.Errorf("stringData.x: expected 7, got %s", quoted)).Error()
		for _, part := range []string{"hunter", "slash", "12345678", "1.2345678905e+09"} {
			if strings.Contains(said, part) {
				t.Errorf("%s: the error is %s", quoted, said)
			}
		}
		if !strings.Contains(said, "stringData.x: expected 7, got ") {
			t.Errorf("%s: the error has become %s", quoted, said)
		}
	}
}
