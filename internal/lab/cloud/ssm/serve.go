package ssm

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"

	"github.com/k8s-from-scratch/terraform-provider-k8s/internal/lab/cloud/wire"
)

// Serve runs one action with its JSON input and returns the answer. Refusals are *wire.Error.
func (s *Store) Serve(action string, body []byte) (any, error) {
	h, ok := actions[action]
	if !ok {
		return nil, wire.Refuse("UnknownOperationException", "The operation %s is not known here.", action)
	}
	return h(s, body)
}

type handler func(*Store, []byte) (any, error)

var actions = map[string]handler{
	"PutParameter":           write((*Store).putParameter),
	"GetParameter":           read((*Store).getParameter),
	"GetParameters":          read((*Store).getParameters),
	"GetParametersByPath":    read((*Store).getParametersByPath),
	"DescribeParameters":     read((*Store).describeParameters),
	"DeleteParameter":        write((*Store).deleteParameter),
	"DeleteParameters":       write((*Store).deleteParameters),
	"AddTagsToResource":      write((*Store).addTags),
	"RemoveTagsFromResource": write((*Store).removeTags),
	"ListTagsForResource":    read((*Store).listTags),
}

func read[I any](f func(*Store, I) (any, error)) handler {
	return func(s *Store, body []byte) (any, error) {
		var in I
		dec := json.NewDecoder(bytes.NewReader(body))
		dec.DisallowUnknownFields()
		if err := dec.Decode(&in); err != nil {
			return nil, wire.Refuse("ValidationException", "The request cannot be read: %v", err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return f(s, in)
	}
}

func write[I any](f func(*Store, I) (any, error)) handler {
	return read(func(s *Store, in I) (any, error) {
		out, err := f(s, in)
		if err != nil {
			return nil, err
		}
		if err := s.save(); err != nil {
			return nil, err
		}
		return out, nil
	})
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Actions returns the names of the actions that are served here, sorted.
func Actions() []string { return sortedKeys(actions) }
