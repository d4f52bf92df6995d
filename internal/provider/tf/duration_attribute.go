package tf

import (
	"github.com/hashicorp/terraform-plugin-framework-timetypes/timetypes"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
)

// DurationAttribute is an optional argument that takes a positive Go duration. Another spelling,
// such as "60m" for "1h", is no change.
func DurationAttribute(description string) schema.StringAttribute {
	return schema.StringAttribute{
		Optional: true, CustomType: timetypes.GoDurationType{}, MarkdownDescription: description,
		Validators:    []validator.String{PositiveDuration()},
		PlanModifiers: []planmodifier.String{KeepEquivalent(timetypes.GoDurationType{})},
	}
}
