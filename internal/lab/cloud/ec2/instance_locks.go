package ec2

import (
	"context"
	"errors"
	"sync"
)

// keyedMutex is a mutex for each key. It serializes the operations on one machine.
type keyedMutex struct {
	mu sync.Mutex
	m  map[string]*sync.Mutex
}

// lock locks the key and returns the function that unlocks it.
func (k *keyedMutex) lock(key string) (unlock func()) {
	k.mu.Lock()
	if k.m == nil {
		k.m = map[string]*sync.Mutex{}
	}
	l := k.m[key]
	if l == nil {
		l = &sync.Mutex{}
		k.m[key] = l
	}
	k.mu.Unlock()
	l.Lock()
	return l.Unlock
}

// errLaunchCancelled is the cause of a launch's end when its instance is terminated.
var errLaunchCancelled = errors.New("the instance was terminated while it was being launched")

// launches holds the functions that cancel the launches in progress.
type launches struct {
	mu sync.Mutex
	m  map[string]context.CancelCauseFunc
}

func (l *launches) begin(ctx context.Context, id string) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m == nil {
		l.m = map[string]context.CancelCauseFunc{}
	}
	l.m[id] = cancel
	return ctx, func() {
		cancel(nil)
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.m, id)
	}
}

func (l *launches) cancel(id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cancel := l.m[id]; cancel != nil {
		cancel(errLaunchCancelled)
	}
}
