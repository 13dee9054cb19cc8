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
	waiting map[string]chan wire.OrderDone // by ID
}

// run receives the results until ctx ends.
func (o *Orders) run(ctx context.Context) error {
	unsubscribe, err := o.bus.Subscribe(wire.OrderDoneSubject("*"), func(_ string, data []byte) {
		var done wire.OrderDone
		if err := json.Unmarshal(data, &done); err != nil {
			o.log.Warn("result of an order refused", slog.Any("error", err))
			return
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		if result := o.waiting[done.ID]; result != nil {
			result <- done
			delete(o.waiting, done.ID) // the first result counts
		}
	})
	if err != nil {
		return err
	}
	defer unsubscribe()
	<-ctx.Done()
	return nil
}

// Forget orders the leading regional of a data centre to forget an edge, and returns its answer.
func (o *Orders) Forget(ctx context.Context, dc string, ask wire.ForgetAsk) (wire.ForgetAnswer, error) {
	done, err := o.send(ctx, dc, wire.Order{Forget: ask})
	return done.ForgetAnswer, err
}

// Find returns the sessions of a data centre with a reference number.
func (o *Orders) Find(ctx context.Context, dc, number string) ([]wire.FoundSession, error) {
	done, err := o.send(ctx, dc, wire.Order{Number: number})
	if err == nil && done.Error != "" {
		err = errors.New(done.Error)
	}
	return done.Sessions, err
}

// Begin tells the leading regional of a data centre that nobody was ever admitted in the fleet.
func (o *Orders) Begin(ctx context.Context, dc string) error {
	answer, err := o.send(ctx, dc, wire.Order{Begin: true})
	if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	return err
}

// send sends an order to a data centre, and returns its answer.
func (o *Orders) send(ctx context.Context, dc string, order wire.Order) (wire.OrderDone, error) {
	order.ID = rand.Text()
	data, err := json.Marshal(order)
	if err != nil {
		return wire.OrderDone{}, err
	}
	result := make(chan wire.OrderDone, 1)
	o.mu.Lock()
	o.waiting[order.ID] = result
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.waiting, order.ID)
	}()
	if err := o.bus.Publish(wire.OrderSubject(dc), data); err != nil {
		return wire.OrderDone{}, fmt.Errorf("data centre %s: order not sent: %w", dc, err)
	}
	ctx, cancel := context.WithTimeout(ctx, orderWithin)
	defer cancel()
	select {
	case answer := <-result:
		return answer, nil
	case <-ctx.Done():
		return wire.OrderDone{}, fmt.Errorf("data centre %s: %w", dc, errNoResult)
	}
}
