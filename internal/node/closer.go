package node

import (
	"log/slog"
	"slices"
	"sync"
)

// Closer releases resources in reverse order of acquisition. The zero value is empty. It is safe for concurrent
// use.
type Closer struct {
	mu    sync.Mutex
	steps []closeStep
}

type closeStep struct {
	name string
	do   func()
}

// Add registers the release function of a resource.
func (c *Closer) Add(name string, do func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steps = append(c.steps, closeStep{name, do})
}

// Close releases all resources. A second call does nothing.
func (c *Closer) Close(log *slog.Logger) {
	c.mu.Lock()
	steps := c.steps
	c.steps = nil
	c.mu.Unlock()
	for _, step := range slices.Backward(steps) {
		log.Debug("closing", slog.String("step", step.name))
		step.do()
	}
}
