package ec2

import (
	"context"
	"errors"
	"sync"
)

// keyedMutex serializes what is done to one machine.
type keyedMutex struct {
	mu sync.Mutex
	m  map[string]*sync.Mutex
}

// lock waits for the key and returns what frees it.
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

// errLaunchCancelled ends a launch whose instance is being terminated.
var errLaunchCancelled = errors.New("the instance was terminated while it was being launched")

// launches holds how to call off the launches under way.
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
