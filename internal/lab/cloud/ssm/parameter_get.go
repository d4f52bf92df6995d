package ssm

import (
	"crypto/sha256"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// view is a parameter in the answers of GetParameter and similar actions.
type view struct {
	ARN              string
	Name             string
	Type             string
	Value            string
	Version          int64
	DataType         string
	LastModifiedDate float64 // seconds since the epoch, as in JSON 1.1
	Selector         string  `json:",omitempty"`
}

func (s *Store) view(p *parameter, decrypt bool) view {
	v := view{
		ARN: s.arn(p.Name), Name: p.Name, Type: p.Type, Value: p.Value,
		Version: p.Version, DataType: p.DataType, LastModifiedDate: epoch(p.revision),
	}
	if p.Type == "SecureString" && !decrypt {
		v.Value = encrypted(p.Name, p.revision)
	}
	return v
}

// encrypted returns what stands for a ciphertext: opaque, and the same for the same value.
func encrypted(name string, r revision) string {
	sum := sha256.Sum256([]byte(r.KeyID + "\x00" + name + "\x00" + r.Value))
	return base64.StdEncoding.EncodeToString(sum[:])
}

func epoch(p revision) float64 { return float64(p.Modified.UnixMilli()) / 1000 }

// find returns the parameter with a name, "name:version" or ARN.
func (s *Store) find(ref string) (p *parameter, selector string, err error) {
	name := ref
	if rest, ok := strings.CutPrefix(name, "arn:"); ok {
		_, path, _ := strings.Cut(rest, ":parameter")
		name = path
		if s.params[name] == nil {
			name = strings.TrimPrefix(path, "/")
		}
	}
	name, version, hasVersion := strings.Cut(name, ":")
	p = s.params[name]
	if p == nil {
		value, ok := s.cfg.Public(name)
		if !ok {
			return nil, "", wire.Refuse("ParameterNotFound", "Parameter %s not found.", name)
		}
		p = &parameter{Name: name, Type: "String", revision: revision{Version: 1, Value: value, DataType: "text", Tier: "Standard", Modified: s.cfg.Now()}}
	}
	if hasVersion {
		n, err := strconv.ParseInt(version, 10, 64)
		old, kept := p.at(n)
		if err != nil || !kept {
			return nil, "", wire.Refuse("ParameterVersionNotFound", "Systems Manager could not find version %s of %s.", version, name)
		}
		p, selector = old, ":"+version
	}
	return p, selector, nil
}

type getInput struct {
	Name           string
	WithDecryption bool
}

func (s *Store) getParameter(in getInput) (any, error) {
	p, selector, err := s.find(in.Name)
	if err != nil {
		return nil, err
	}
	v := s.view(p, in.WithDecryption)
	v.Selector = selector
	return struct{ Parameter view }{v}, nil
}

type getManyInput struct {
	Names          []string
	WithDecryption bool
}

func (s *Store) getParameters(in getManyInput) (any, error) {
	if err := checkNames(in.Names); err != nil {
		return nil, err
	}
	out := struct {
		Parameters        []view
		InvalidParameters []string
	}{Parameters: []view{}, InvalidParameters: []string{}}
	for _, name := range in.Names {
		p, selector, err := s.find(name)
		if err != nil {
			out.InvalidParameters = append(out.InvalidParameters, name)
			continue
		}
		v := s.view(p, in.WithDecryption)
		v.Selector = selector
		out.Parameters = append(out.Parameters, v)
	}
	return out, nil
}

func checkNames(names []string) error {
	if len(names) == 0 || len(names) > 10 {
		return wire.Refuse("ValidationException", "1 validation error detected: Value '[%s]' at 'names' failed to satisfy constraint: Member must have length less than or equal to 10.", strings.Join(names, ", "))
	}
	return nil
}

type byPathInput struct {
	Path             string
	Recursive        bool
	WithDecryption   bool
	MaxResults       int
	NextToken        string
	ParameterFilters []filter
}

func (s *Store) getParametersByPath(in byPathInput) (any, error) {
	if !strings.HasPrefix(in.Path, "/") {
		return nil, wire.Refuse("ValidationException", "The parameter doesn't meet the parameter name requirements. The parameter name must begin with a forward slash \"/\".")
	}
	below := func(name string) bool { return under(name, in.Path, in.Recursive) }
	found, err := s.matching(below, in.ParameterFilters, "Type", "KeyId")
	if err != nil {
		return nil, err
	}
	page, next, err := paginate(found, in.MaxResults, 10, in.NextToken)
	if err != nil {
		return nil, err
	}
	out := struct {
		Parameters []view
		NextToken  string `json:",omitempty"`
	}{Parameters: []view{}, NextToken: next}
	for _, p := range page {
		out.Parameters = append(out.Parameters, s.view(p, in.WithDecryption))
	}
	return out, nil
}

func under(name, path string, recursive bool) bool {
	rest, ok := strings.CutPrefix(name, strings.TrimSuffix(path, "/")+"/")
	return ok && rest != "" && (recursive || !strings.Contains(rest, "/"))
}

// paginate returns one page of items. Tokens are positions.
func paginate[T any](items []T, size, limit int, token string) (page []T, next string, err error) {
	if size < 0 || size > limit {
		return nil, "", wire.Refuse("ValidationException", "1 validation error detected: Value '%d' at 'maxResults' failed to satisfy constraint: Member must have value less than or equal to %d.", size, limit)
	}
	if size == 0 {
		size = limit
	}
	from := 0
	if token != "" {
		if from, err = strconv.Atoi(token); err != nil || from < 0 || from > len(items) {
			return nil, "", wire.Refuse("InvalidNextToken", "The specified token isn't valid.")
		}
	}
	to := min(from+size, len(items))
	if to < len(items) {
		next = strconv.Itoa(to)
	}
	return slices.Clone(items[from:to]), next, nil
}
