package pki

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
)

// MemoryStore keeps keys in memory. It is the store for StoreState, whose content is a sensitive
// value in Terraform state. Printing it shows no values.
type MemoryStore struct {
	mu     sync.Mutex
	values map[string]string
}

// NewMemoryStore returns a store that holds a copy of values, which may be nil.
func NewMemoryStore(values map[string]string) *MemoryStore {
	m := &MemoryStore{values: map[string]string{}}
	maps.Copy(m.values, values)
	return m
}

// MemoryStore returns the store of a cluster with StoreState: its keys and public certificates.
func (r Ref) MemoryStore() *MemoryStore {
	m := NewMemoryStore(r.Keys)
	maps.Copy(m.values, r.Public())
	return m
}

// Get implements Store.
func (m *MemoryStore) Get(_ context.Context, name string) ([]byte, error) {
	if err := CheckName(name); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.values[name]
	if !ok {
		return nil, fmt.Errorf("%s: %w", name, ErrNotFound)
	}
	return []byte(v), nil
}

// Create implements Store.
func (m *MemoryStore) Create(_ context.Context, name string, value []byte) error {
	if err := CheckName(name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.values[name]; ok {
		return fmt.Errorf("%s: %w", name, ErrExists)
	}
	m.values[name] = string(value)
	return nil
}

// Replace implements Store.
func (m *MemoryStore) Replace(_ context.Context, name string, value []byte) error {
	if err := CheckPublicName(name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[name] = string(value)
	return nil
}

// Delete implements Store.
func (m *MemoryStore) Delete(_ context.Context, name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.values[name]; !ok {
		return fmt.Errorf("%s: %w", name, ErrNotFound)
	}
	delete(m.values, name)
	return nil
}

// List implements Store.
func (m *MemoryStore) List(context.Context) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.values)), nil
}

// String returns the names in the store.
func (m *MemoryStore) String() string {
	names, _ := m.List(context.Background())
	return fmt.Sprintf("MemoryStore%v", names)
}

// GoString is String, for %#v.
func (m *MemoryStore) GoString() string { return "pki." + m.String() }

// LogValue is String, for log/slog.
func (m *MemoryStore) LogValue() slog.Value { return slog.StringValue(m.String()) }
