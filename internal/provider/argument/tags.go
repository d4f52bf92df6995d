package argument

import (
	"fmt"
	"slices"

	"github.com/hashicorp/terraform-plugin-framework-validators/mapvalidator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"

	infraaws "github.com/k8s-from-scratch/terraform-provider-k8s/infra/aws"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/provider/tf"
)

// TagsAttribute is the argument `tags`.
func TagsAttribute() schema.MapAttribute {
	return schema.MapAttribute{
		Optional: true, ElementType: types.StringType,
		MarkdownDescription: "Tags, added to the provider's `default_tags`, which they override. Changed in place. Default: none.",
		Validators:          TagValidators(),
	}
}

// TagsAllAttribute is the computed attribute `tags_all`.
func TagsAllAttribute() schema.MapAttribute {
	return schema.MapAttribute{
		Computed: true, ElementType: types.StringType,
		MarkdownDescription: "All tags: the provider's `default_tags`, overridden by `tags`.",
	}
}

// RemovedKeys returns the tag keys of before that are not in after.
func RemovedKeys(before, after types.Map) []string {
	now := tf.StringMap(after)
	var out []string
	for k := range tf.StringMap(before) {
		if _, still := now[k]; !still {
			out = append(out, k)
		}
	}
	slices.Sort(out)
	return out
}

// TagValidators check EC2's limits on tags, and refuse the keys that the library sets itself.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html
func TagValidators() []validator.Map {
	return []validator.Map{
		mapvalidator.SizeAtMost(MaxTags),
		mapvalidator.KeysAre(stringvalidator.LengthBetween(1, 128), tf.Check("a tag key that the provider does not use itself", func(s string) error {
			if infraaws.ReservedTag(s) {
				return fmt.Errorf("the provider sets %q itself", s)
			}
			return nil
		})),
		mapvalidator.ValueStringsAre(stringvalidator.LengthAtMost(256)),
	}
}

// MaxTags is how many tags an object may have besides the provider's own: EC2 allows 50, and a
// machine has 12 of the provider.
const MaxTags = 38
