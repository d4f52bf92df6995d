package ssm

import (
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

type historyInput struct {
	Name           string
	WithDecryption bool
	MaxResults     int
	NextToken      string
}

// version is one version in a parameter's history.
type version struct {
	Name             string
	Type             string
	Value            string
	KeyId            string `json:",omitempty"`
	Description      string `json:",omitempty"`
	AllowedPattern   string `json:",omitempty"`
	DataType         string
	Tier             string
	Version          int64
	Labels           []string
	LastModifiedDate float64
	LastModifiedUser string
}

// getParameterHistory returns the versions that are kept, oldest first. Labels cannot be made here.
func (s *Store) getParameterHistory(in historyInput) (any, error) {
	p := s.params[in.Name]
	if p == nil {
		return nil, wire.Refuse("ParameterNotFound", "Parameter %s not found.", in.Name)
	}
	page, next, err := paginate(slices.Concat(p.Earlier, []revision{p.revision}), in.MaxResults, 50, in.NextToken)
	if err != nil {
		return nil, err
	}
	out := struct {
		Parameters []version
		NextToken  string `json:",omitempty"`
	}{Parameters: []version{}, NextToken: next}
	for _, r := range page {
		v := version{
			Name: p.Name, Type: p.Type, Value: r.Value, KeyId: r.KeyID, Description: r.Description, AllowedPattern: r.AllowedPattern,
			DataType: r.DataType, Tier: r.Tier, Version: r.Version, Labels: []string{}, LastModifiedDate: epoch(r), LastModifiedUser: s.user(),
		}
		if p.Type == "SecureString" && !in.WithDecryption {
			v.Value = encrypted(p.Name, r)
		}
		out.Parameters = append(out.Parameters, v)
	}
	return out, nil
}

// user returns who changed a parameter: nobody records it here.
func (s *Store) user() string {
	return "arn:" + wire.Partition(s.cfg.Region) + ":iam::" + s.cfg.AccountID + ":user/lab"
}
