package argument

import (
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/k8s-from-scratch/terraform-provider-k8s/infra/finding"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// DriftValue returns the attribute drift: the findings in words, by subject.
func DriftValue(findings []finding.Finding) types.Map {
	return tf.StringMapValue(finding.BySubject(findings))
}
