package edge

import (
	"context"
	"math"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
	"time"

	"vestibule/internal/node"
)

// memoryUse is what this process uses of its memory limit.
type memoryUse struct {
	limit int64
	used  []runtimemetrics.Sample
}

// newMemoryUse returns the memory of this process; its limit is GOMEMLIMIT, or none.
func newMemoryUse() *memoryUse {
	return &memoryUse{
		limit: debug.SetMemoryLimit(-1),
		used:  []runtimemetrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/stacks:bytes"}},
	}
}

// percent returns the part of the limit that is in use, without garbage.
func (m *memoryUse) percent() int64 {
	runtimemetrics.Read(m.used)
	n := uint64(0)
	for _, s := range m.used {
		n += s.Value.Uint64()
	}
	return int64(float64(n) * 100 / float64(m.limit))
}

// memoryEvery is the time between two looks at the memory in use.
const memoryEvery = 100 * time.Millisecond

// Above fullMemory percent of the limit not even patience is left.
const fullMemory = 90

// watchMemory sheds connections above shedAt of the memory limit, until ctx ends.
func (x *connections) watchMemory(ctx context.Context, m *memoryUse) {
	if m.limit == math.MaxInt64 {
		return
	}
	node.Every(ctx, memoryEvery, func() {
		if part := m.percent(); part >= shedAt {
			x.shed(wantMemory, part >= fullMemory)
		}
	})
}
