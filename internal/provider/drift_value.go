package provider

import (
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// driftValue returns the attribute drift: the findings in words, by subject.
func driftValue(findings []finding.Finding) types.Map {
	return tf.StringMapValue(finding.BySubject(findings))
}
