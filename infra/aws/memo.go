package aws

import "sync"

// Memo keeps answers of AWS that do not change while the client lives, so that machines that are made together ask only
// once. It is safe for concurrent use.
type Memo[K comparable, V any] struct {
	mu    sync.Mutex
	known map[K]*remembered[V]
}

type remembered[V any] struct {
	mu    sync.Mutex
	ok    bool
	value V
}

// Get returns the answer for a key. It asks if there is none yet, and others who want it wait meanwhile. An error is not
// kept.
func (m *Memo[K, V]) Get(key K, ask func() (V, error)) (V, error) {
	m.mu.Lock()
	if m.known == nil {
		m.known = map[K]*remembered[V]{}
	}
	r := m.known[key]
	if r == nil {
		r = &remembered[V]{}
		m.known[key] = r
	}
	m.mu.Unlock()

	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.ok {
		value, err := ask()
		if err != nil {
			return r.value, err
		}
		r.value, r.ok = value, true
	}
	return r.value, nil
}
