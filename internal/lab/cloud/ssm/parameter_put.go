package ssm

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// Limits of Parameter Store (Systems Manager quotas).
const (
	maxStandardValue = 4096
	maxAdvancedValue = 8192
	maxDepth         = 15
	maxName          = 1011
	maxTags          = 50
	defaultKey       = "alias/aws/ssm"
)

type tag struct{ Key, Value string }

type putInput struct {
	Name, Value, Type, KeyId, Description, AllowedPattern, DataType, Tier string
	Overwrite                                                             bool
	Tags                                                                  []tag
}

var validName = regexp.MustCompile(`^[a-zA-Z0-9_.\-/]+$`)

func (s *Store) putParameter(in putInput) (any, error) {
	if err := checkPut(in); err != nil {
		return nil, err
	}
	old := s.params[in.Name]
	p := &parameter{Name: in.Name, revision: revision{Version: 1}, Tags: map[string]string{}}
	if old != nil {
		switch {
		case !in.Overwrite:
			return nil, wire.Refuse("ParameterAlreadyExists", "The parameter already exists. To overwrite this value, set the overwrite option in the request to true.")
		case in.Type != "" && in.Type != old.Type:
			return nil, wire.Refuse("HierarchyTypeMismatchException", "Parameter Store doesn't support changing a parameter type in a hierarchy. For example, you can't change a parameter from a String type to a SecureString type. You must create a new, unique parameter.")
		}
		*p = *old
		p.Earlier = slices.Concat(old.Earlier, []revision{old.revision})
		p.Earlier = p.Earlier[max(0, len(p.Earlier)-maxVersions+1):]
		p.Version++
	} else if at, ok := s.deleted[in.Name]; ok && s.cfg.Now().Sub(at) < s.cfg.Reuse {
		return nil, wire.Refuse("TooManyUpdates", "Failed to create the parameter since stale tags associated to the name detected. Please retry in a while or change a parameter name.")
	}
	p.Type = cmp.Or(in.Type, p.Type)
	if p.Type == "" {
		return nil, wire.Refuse("ValidationException", "A parameter type is required when you create a parameter.")
	}
	if p.Type != "SecureString" && in.KeyId != "" {
		return nil, wire.Refuse("ValidationException", "KeyId is required for SecureString type parameter only.")
	}
	if p.Type == "SecureString" {
		p.KeyID = cmp.Or(in.KeyId, p.KeyID, defaultKey)
	}
	p.Value = in.Value
	p.Description = cmp.Or(in.Description, p.Description)
	p.AllowedPattern = cmp.Or(in.AllowedPattern, p.AllowedPattern)
	p.DataType = cmp.Or(in.DataType, p.DataType, "text")
	p.Tier = tier(in, p.Tier)
	p.Modified = s.cfg.Now().UTC()
	for _, t := range in.Tags {
		p.Tags[t.Key] = t.Value
	}
	s.params[p.Name] = p
	return struct {
		Version int64
		Tier    string
	}{p.Version, p.Tier}, nil
}

func tier(in putInput, old string) string {
	switch {
	case in.Tier == "Intelligent-Tiering" && len(in.Value) > maxStandardValue, old == "Advanced":
		return "Advanced"
	case in.Tier == "Intelligent-Tiering":
		return "Standard"
	}
	return cmp.Or(in.Tier, old, "Standard")
}

func checkPut(in putInput) error {
	invalid := func(format string, args ...any) error { return wire.Refuse("ValidationException", format, args...) }
	if !validName.MatchString(in.Name) || len(in.Name) > maxName {
		return invalid("Parameter name: can't be prefixed with \"ssm\" (case-insensitive). If formed as a path, it can consist of sub-paths divided by slash symbol; each sub-path can be formed as a mix of letters, numbers and the following 3 symbols .-_")
	}
	lower := strings.TrimPrefix(strings.ToLower(in.Name), "/")
	if strings.HasPrefix(lower, "aws") || strings.HasPrefix(lower, "ssm") {
		return wire.Refuse("AccessDeniedException", "No access to reserved parameter name: %s.", in.Name)
	}
	if strings.Contains(in.Name, "/") && in.Name[0] != '/' {
		return invalid("Parameter name must be a fully qualified name.")
	}
	if strings.Count(in.Name, "/") > maxDepth {
		return wire.Refuse("HierarchyLevelLimitExceededException", "The hierarchy depth of a parameter name must not exceed %d levels.", maxDepth)
	}
	if !slices.Contains([]string{"", "String", "StringList", "SecureString"}, in.Type) {
		return invalid("1 validation error detected: Value '%s' at 'type' failed to satisfy constraint: Member must satisfy enum value set: [SecureString, StringList, String]", in.Type)
	}
	if !slices.Contains([]string{"", "Standard", "Advanced", "Intelligent-Tiering"}, in.Tier) {
		return invalid("1 validation error detected: Value '%s' at 'tier' failed to satisfy constraint: Member must satisfy enum value set: [Standard, Advanced, Intelligent-Tiering]", in.Tier)
	}
	size := utf8.RuneCountInString(in.Value)
	switch {
	case size == 0:
		return invalid("1 validation error detected: Value '' at 'value' failed to satisfy constraint: Member must have length greater than or equal to 1.")
	case size > maxAdvancedValue:
		return invalid("Advanced tier parameters support a maximum parameter value of %d characters.", maxAdvancedValue)
	case size > maxStandardValue && (in.Tier == "" || in.Tier == "Standard"):
		return invalid("Standard tier parameters support a maximum parameter value of %d characters. To create a larger parameter value, upgrade the parameter to use the advanced-parameter tier. For more information, see https://docs.aws.amazon.com/systems-manager/latest/userguide/parameter-store-advanced-parameters.html", maxStandardValue)
	}
	if in.AllowedPattern != "" {
		re, err := regexp.Compile(in.AllowedPattern)
		if err != nil {
			return wire.Refuse("InvalidAllowedPatternException", "The regular expression is not valid: %v", err)
		}
		if !re.MatchString(in.Value) {
			return wire.Refuse("ParameterPatternMismatchException", "Parameter value, cannot be validated against allowedPattern: %s", in.AllowedPattern)
		}
	}
	if in.Overwrite && len(in.Tags) > 0 {
		return invalid("Invalid request: tags and overwrite can't be used together. To create a parameter with tags, please remove overwrite flag. To update tags for an existing parameter, please use AddTagsToResource or RemoveTagsFromResource.")
	}
	return checkTags(in.Tags)
}

// validTag is the pattern of keys and values in Systems Manager's API reference. EC2 has none.
var validTag = regexp.MustCompile(`^([\p{L}\p{Z}\p{N}_.:/=+\-@]*)$`)

func checkTags(tags []tag) error {
	if len(tags) > maxTags {
		return wire.Refuse("TooManyTagsError", "The number of tags exceeds %d.", maxTags)
	}
	for _, t := range tags {
		if t.Key == "" || len(t.Key) > 128 || len(t.Value) > 256 {
			return wire.Refuse("ValidationException", "The tag key %q or its value has an invalid length.", t.Key)
		}
		if !validTag.MatchString(t.Key) || !validTag.MatchString(t.Value) {
			return wire.Refuse("ValidationException", "1 validation error detected: Value '[Tag(key=%s, value=%s)]' at 'tags' failed to satisfy constraint: Member must satisfy regular expression pattern: ^([\\p{L}\\p{Z}\\p{N}_.:/=+\\-@]*)$", t.Key, t.Value)
		}
		if strings.HasPrefix(strings.ToLower(t.Key), "aws:") {
			return wire.Refuse("ValidationException", "Tag keys starting with 'aws:' are reserved for internal use.")
		}
	}
	return nil
}
