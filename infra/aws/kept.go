package aws

import (
	"reflect"
	"sync"
)

// kept is what packages keep with a client.
type kept struct {
	mu     sync.Mutex
	values map[reflect.Type]any
}

// Kept returns a value that a package keeps for the life of a client, such as answers of AWS and shared calls: one
// value of a type for each client, which fresh makes at the first request. fresh must not call Kept.
func Kept[T any](c *Client, fresh func(*Client) *T) *T {
	c.kept.mu.Lock()
	defer c.kept.mu.Unlock()
	key := reflect.TypeFor[T]()
	if c.kept.values == nil {
		c.kept.values = map[reflect.Type]any{}
	}
	if c.kept.values[key] == nil {
		c.kept.values[key] = fresh(c)
	}
	return c.kept.values[key].(*T)
}
