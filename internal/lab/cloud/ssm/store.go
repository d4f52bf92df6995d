// Package ssm is the local cloud's Parameter Store: the SSM actions on parameters, kept in one
// private file.
//
// It knows nothing of signatures, faults, HTTP and other services.
package ssm

import (
	"cmp"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/bucket"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// Config is a Store's configuration.
type Config struct {
	File      string           // where parameters are kept, mode 0600; empty keeps them in memory
	Region    string           // of the ARNs
	AccountID string           // of the ARNs
	Now       func() time.Time // the clock
	// Reuse is how long after a deletion a new parameter of that name is refused; zero means 30
	// seconds, as Parameter Store asks its users to wait.
	// https://docs.aws.amazon.com/systems-manager/latest/APIReference/API_DeleteParameter.html
	Reuse       time.Duration
	Unthrottled bool // lets any number of calls through
	// Public returns the value of a public parameter of AWS, such as the id of an image.
	Public func(name string) (value string, ok bool)
}

// Store holds parameters. Its methods are safe for concurrent use.
type Store struct {
	cfg     Config
	buckets bucket.Set
	mu      sync.Mutex
	params  map[string]*parameter
	// deleted says when a name was deleted, if that was less than Config.Reuse ago.
	deleted map[string]time.Time
}

// saved is the form of the file.
type saved struct {
	Parameters map[string]*parameter
	Deleted    map[string]time.Time `json:",omitempty"`
}

// parameter is a parameter with its current and its earlier versions.
type parameter struct {
	Name string
	Type string
	revision
	Earlier []revision        `json:",omitempty"` // oldest first
	Tags    map[string]string `json:",omitempty"`
}

// revision is what a version of a parameter has for itself.
type revision struct {
	Version        int64
	Value          string
	KeyID          string `json:",omitempty"`
	Description    string `json:",omitempty"`
	AllowedPattern string `json:",omitempty"`
	DataType       string
	Tier           string
	Modified       time.Time
}

// maxVersions is how many versions Parameter Store keeps of a parameter, the current one included.
const maxVersions = 100

// at returns the parameter as it was at a version, and whether that is still kept.
func (p *parameter) at(version int64) (*parameter, bool) {
	for _, r := range append([]revision{p.revision}, p.Earlier...) {
		if r.Version == version {
			return &parameter{Name: p.Name, Type: p.Type, revision: r, Tags: p.Tags}, true
		}
	}
	return nil, false
}

const defaultReuse = 30 * time.Second

// remove deletes a parameter and remembers when.
func (s *Store) remove(name string) {
	now := s.cfg.Now()
	for other, at := range s.deleted {
		if now.Sub(at) >= s.cfg.Reuse {
			delete(s.deleted, other)
		}
	}
	delete(s.params, name)
	s.deleted[name] = now
}

// Open reads the parameters kept in cfg.File, if it exists.
func Open(cfg Config) (*Store, error) {
	cfg.Reuse = cmp.Or(cfg.Reuse, defaultReuse)
	kept := saved{Parameters: map[string]*parameter{}, Deleted: map[string]time.Time{}}
	if cfg.File != "" {
		if err := file.ReadJSON(cfg.File, &kept); err != nil {
			return nil, fmt.Errorf("reading the parameter store: %w", err)
		}
	}
	return &Store{cfg: cfg, params: kept.Parameters, deleted: kept.Deleted}, nil
}

// Names returns the names of all parameters.
func (s *Store) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sortedKeys(s.params)
}

// save writes all parameters. The caller holds mu.
func (s *Store) save() error {
	if s.cfg.File == "" {
		return nil
	}
	if err := file.WriteJSON(s.cfg.File, saved{s.params, s.deleted}, 0o600); err != nil {
		return fmt.Errorf("saving the parameter store: %w", err)
	}
	return nil
}

func (s *Store) arn(name string) string {
	if len(name) > 0 && name[0] != '/' {
		name = "/" + name
	}
	return fmt.Sprintf("arn:%s:ssm:%s:%s:parameter%s", wire.Partition(s.cfg.Region), s.cfg.Region, s.cfg.AccountID, name)
}

// Tags returns the tags of a parameter, named as in a request, and whether it is one of AWS' public
// ones.
func (s *Store) Tags(ref string) (tags map[string]string, public bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, _, _ := strings.Cut(ref, ":")
	if p := s.params[name]; p != nil {
		return maps.Clone(p.Tags), false
	}
	_, public = s.cfg.Public(name)
	return nil, public
}
