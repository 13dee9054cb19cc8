package global

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"vestibule/internal/core/wire"
)

// orderWithin is how long an order waits for the result.
const orderWithin = 3 * time.Second

// errNoResult means that no regional has sent the result of an order in time.
var errNoResult = errors.New("no result came: the regional does not lead, is cut off, or is older than this global; " +
	"it is not known whether the order was carried out")

// Orders are those of operators to regionals that wait for their results. Its methods are safe for concurrent use.
type Orders struct {
	bus wire.Bus
	log *slog.Logger

	mu      sync.Mutex
	waiting map[string]chan wire.ForgetAnswer // by ID
}

// run receives the results until ctx ends.
func (o *Orders) run(ctx context.Context) error {
	deaf, err := o.bus.Subscribe(wire.OrderDoneSubject("*"), func(_ string, data []byte) {
		var done wire.OrderDone
		if err := json.Unmarshal(data, &done); err != nil {
			o.log.Warn("result of an order refused", slog.Any("error", err))
			return
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if result := o.waiting[done.ID]; result != nil {
			result <- done.ForgetAnswer
			delete(o.waiting, done.ID) // the first result counts
		}
	})
	if err != nil {
		return err
	}
	defer deaf()
	<-ctx.Done()
	return nil
}

// Forget orders the leading regional of a data centre to forget an edge, and returns its answer.
func (o *Orders) Forget(ctx context.Context, dc string, ask wire.ForgetAsk) (wire.ForgetAnswer, error) {
	order := wire.Order{ID: rand.Text(), Forget: ask}
	data, err := json.Marshal(order)
	if err != nil {
		return wire.ForgetAnswer{}, err
	}
	result := make(chan wire.ForgetAnswer, 1)
	o.mu.Lock()
	o.waiting[order.ID] = result
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.waiting, order.ID)
	}()
	if err := o.bus.Publish(wire.OrderSubject(dc), data); err != nil {
		return wire.ForgetAnswer{}, fmt.Errorf("data centre %s: order not sent: %w", dc, err)
	}
	ctx, cancel := context.WithTimeout(ctx, orderWithin)
	defer cancel()
	select {
	case answer := <-result:
		return answer, nil
	case <-ctx.Done():
		return wire.ForgetAnswer{}, fmt.Errorf("data centre %s: %w", dc, errNoResult)
	}
}
