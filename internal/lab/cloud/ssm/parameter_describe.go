package ssm

import (
	"slices"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

type deleteInput struct{ Name string }

func (s *Store) deleteParameter(in deleteInput) (any, error) {
	if s.params[in.Name] == nil {
		return nil, wire.Refuse("ParameterNotFound", "Parameter %s not found.", in.Name)
	}
	s.remove(in.Name)
	return struct{}{}, nil
}

type deleteManyInput struct{ Names []string }

func (s *Store) deleteParameters(in deleteManyInput) (any, error) {
	if err := checkNames(in.Names); err != nil {
		return nil, err
	}
	out := struct{ DeletedParameters, InvalidParameters []string }{[]string{}, []string{}}
	for _, name := range in.Names {
		if s.params[name] == nil {
			out.InvalidParameters = append(out.InvalidParameters, name)
			continue
		}
		s.remove(name)
		out.DeletedParameters = append(out.DeletedParameters, name)
	}
	return out, nil
}

type filter struct {
	Key, Option string
	Values      []string
}

type describeInput struct {
	ParameterFilters []filter
	MaxResults       int
	NextToken        string
}

type metadata struct {
	ARN              string
	Name             string
	Type             string
	KeyId            string `json:",omitempty"`
	Description      string `json:",omitempty"`
	AllowedPattern   string `json:",omitempty"`
	DataType         string
	Tier             string
	Version          int64
	LastModifiedDate float64
	LastModifiedUser string
}

func (s *Store) describeParameters(in describeInput) (any, error) {
	every := func(string) bool { return true }
	found, err := s.matching(every, in.ParameterFilters, "Name", "Path", "Type", "KeyId", "Tier", "DataType")
	if err != nil {
		return nil, err
	}
	page, next, err := paginate(found, in.MaxResults, 50, in.NextToken)
	if err != nil {
		return nil, err
	}
	out := struct {
		Parameters []metadata
		NextToken  string `json:",omitempty"`
	}{Parameters: []metadata{}, NextToken: next}
	for _, p := range page {
		out.Parameters = append(out.Parameters, metadata{
			ARN: s.arn(p.Name), Name: p.Name, Type: p.Type, KeyId: p.KeyID, Description: p.Description,
			AllowedPattern: p.AllowedPattern, DataType: p.DataType, Tier: p.Tier, Version: p.Version,
			LastModifiedDate: epoch(p.revision), LastModifiedUser: s.user(),
		})
	}
	return out, nil
}

// matching returns the parameters whose name is wanted and that match every filter, ordered by
// name.
func (s *Store) matching(wanted func(name string) bool, filters []filter, known ...string) ([]*parameter, error) {
	var found []*parameter
	for _, name := range sortedKeys(s.params) {
		if !wanted(name) {
			continue
		}
		ok, err := matchAll(s.params[name], filters, known...)
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, s.params[name])
		}
	}
	return found, nil
}

// matchAll reports whether p matches every filter. "tag:KEY" is allowed only if known contains
// Name.
func matchAll(p *parameter, filters []filter, known ...string) (bool, error) {
	for _, f := range filters {
		key, isTag := strings.CutPrefix(f.Key, "tag:")
		if !slices.Contains(known, f.Key) && (!isTag || !slices.Contains(known, "Name")) {
			return false, wire.Refuse("InvalidFilterKey", "The specified key isn't valid: %s", f.Key)
		}
		value := map[string]string{"Name": p.Name, "Path": p.Name, "Type": p.Type, "KeyId": p.KeyID, "Tier": p.Tier, "DataType": p.DataType}[f.Key]
		if isTag {
			var ok bool
			if value, ok = p.Tags[key]; !ok {
				return false, nil
			}
			if len(f.Values) == 0 {
				continue
			}
		}
		match, err := option(f)
		if err != nil {
			return false, err
		}
		if !slices.ContainsFunc(f.Values, func(want string) bool { return match(value, want) }) {
			return false, nil
		}
	}
	return true, nil
}

func option(f filter) (func(value, want string) bool, error) {
	switch {
	case f.Key == "Path" && (f.Option == "" || f.Option == "OneLevel"):
		return func(value, want string) bool { return under(value, want, false) }, nil
	case f.Key == "Path" && f.Option == "Recursive":
		return func(value, want string) bool { return under(value, want, true) }, nil
	case f.Option == "" || f.Option == "Equals":
		return func(value, want string) bool {
			return value == want || (f.Key == "Name" && value == "/"+want)
		}, nil
	case f.Option == "BeginsWith":
		return strings.HasPrefix, nil
	case f.Option == "Contains" && f.Key == "Name":
		return strings.Contains, nil
	}
	return nil, wire.Refuse("InvalidFilterOption", "The specified filter option isn't valid: %s", f.Option)
}

type tagsInput struct {
	ResourceType, ResourceId string
	Tags                     []tag
	TagKeys                  []string
}

func (s *Store) tagged(in tagsInput) (*parameter, error) {
	if in.ResourceType != "Parameter" {
		return nil, wire.Refuse("InvalidResourceType", "The resource type %s isn't valid here.", in.ResourceType)
	}
	p := s.params[in.ResourceId]
	if p == nil {
		return nil, wire.Refuse("InvalidResourceId", "The parameter %s doesn't exist.", in.ResourceId)
	}
	if p.Tags == nil {
		p.Tags = map[string]string{}
	}
	return p, nil
}

func (s *Store) addTags(in tagsInput) (any, error) {
	p, err := s.tagged(in)
	if err != nil {
		return nil, err
	}
	if err := checkTags(in.Tags); err != nil {
		return nil, err
	}
	for _, t := range in.Tags {
		p.Tags[t.Key] = t.Value
	}
	return struct{}{}, nil
}

func (s *Store) removeTags(in tagsInput) (any, error) {
	p, err := s.tagged(in)
	if err != nil {
		return nil, err
	}
	for _, k := range in.TagKeys {
		delete(p.Tags, k)
	}
	return struct{}{}, nil
}

func (s *Store) listTags(in tagsInput) (any, error) {
	p, err := s.tagged(in)
	if err != nil {
		return nil, err
	}
	out := struct{ TagList []tag }{[]tag{}}
	for _, k := range sortedKeys(p.Tags) {
		out.TagList = append(out.TagList, tag{k, p.Tags[k]})
	}
	return out, nil
}

// user returns who changed a parameter: nobody records it here.
func (s *Store) user() string {
	return "arn:" + wire.Partition(s.cfg.Region) + ":iam::" + s.cfg.AccountID + ":user/lab"
}
