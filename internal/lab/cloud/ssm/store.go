// Package ssm is the local cloud's Parameter Store: the SSM actions on parameters, kept in one
// private file.
//
// It knows nothing of signatures, faults, HTTP and other services.
package ssm

import (
	"fmt"
	"sync"
	"time"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/file"
)

// Config is a Store's configuration.
type Config struct {
	File      string           // where parameters are kept, mode 0600; empty keeps them in memory
	Region    string           // of the ARNs
	AccountID string           // of the ARNs
	Now       func() time.Time // the clock
	// Public returns the value of a public parameter of AWS, such as the id of an image.
	Public func(name string) (value string, ok bool)
}

// Store holds parameters. Its methods are safe for concurrent use.
type Store struct {
	cfg    Config
	mu     sync.Mutex
	params map[string]*parameter
}

type parameter struct {
	Name           string
	Type           string
	Value          string
	KeyID          string `json:",omitempty"`
	Description    string `json:",omitempty"`
	AllowedPattern string `json:",omitempty"`
	DataType       string
	Tier           string
	Version        int64
	Modified       time.Time
	Tags           map[string]string `json:",omitempty"`
}

// Open reads the parameters kept in cfg.File, if it exists.
func Open(cfg Config) (*Store, error) {
	s := &Store{cfg: cfg, params: map[string]*parameter{}}
	if cfg.File == "" {
		return s, nil
	}
	if err := file.ReadJSON(cfg.File, &s.params); err != nil {
		return nil, fmt.Errorf("reading the parameter store: %w", err)
	}
	return s, nil
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
	if err := file.WriteJSON(s.cfg.File, s.params, 0o600); err != nil {
		return fmt.Errorf("saving the parameter store: %w", err)
	}
	return nil
}

func (s *Store) arn(name string) string {
	if len(name) > 0 && name[0] != '/' {
		name = "/" + name
	}
	return fmt.Sprintf("arn:aws:ssm:%s:%s:parameter%s", s.cfg.Region, s.cfg.AccountID, name)
}
