package aws

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
)

// TestMemo: callers that need the same answer at once ask once, an error is not kept, and each key
// has its own answer.
func TestMemo(t *testing.T) {
	var m Memo[string, int]
	var asked atomic.Int64
	if _, err := m.Get("a", func() (int, error) { return 7, errors.New("refused") }); err == nil {
		t.Error("no error")
	}
	var all sync.WaitGroup
	for _, key := range []string{"a", "a", "b", "a"} {
		all.Go(func() {
			n, err := m.Get(key, func() (int, error) {
				asked.Add(1)
				return len(key), nil
			})
			if n != 1 || err != nil {
				t.Errorf("%s: %d, %v", key, n, err)
			}
		})
	}
	all.Wait()
	if n := asked.Load(); n != 2 {
		t.Errorf("asked %d times, wanted once for each key", n)
	}
}

// TestKept: each client keeps one value of each type.
func TestKept(t *testing.T) {
	type lent struct{ of *Client }
	type other struct{ of *Client }
	fresh := func(c *Client) *lent { return &lent{c} }
	a, b := &Client{}, &Client{}
	first := Kept(a, fresh)
	if first.of != a || Kept(a, fresh) != first || Kept(b, fresh).of != b {
		t.Error("a value of another client")
	}
	if Kept(a, func(c *Client) *other { return &other{c} }).of != a || Kept(a, fresh) != first {
		t.Error("values of two types are mixed up")
	}
}
