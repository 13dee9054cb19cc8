package main

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"vestibule/internal/core/admission"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
	"vestibule/internal/node"
	"vestibule/internal/node/natsbus"
)

// others runs the cores of idle edges in this process.
func others(url string, rooms, n int) (stop func(), err error) {
	conn, err := natsbus.Connect(natsbus.Options{Name: "others", URL: url, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	var doors []admission.Room
	for i := range rooms {
		doors = append(doors, admission.Room{ID: room.IDOf(fmt.Sprint("room-", i)), Session: 5 * time.Minute})
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	stop = func() {
		cancel()
		running.Wait()
		conn.Close()
	}
	clock := node.NewClock()
	for i := range n {
		name := fmt.Sprint("other-", i)
		eng := admission.New(admission.Config{
			Edge: name, DC: "dublin", Params: wire.DefaultParams(), Limits: admission.DefaultLimits(),
			Rand: rand.New(rand.NewPCG(rand.Uint64(), uint64(i))),
		})
		eng.SetRooms(clock.Now(), doors)
		inbox := make(chan *wire.Grant, 64)
		end, err := conn.Subscribe(wire.GrantSubject("dublin", name), func(_ string, data []byte) {
			if g, err := wire.DecodeGrant(data); err == nil {
				select {
				case inbox <- g:
				default: // the next one has the same content
				}
			}
		})
		if err != nil {
			stop()
			return nil, err
		}
		running.Go(func() {
			defer end()
			runEdge(ctx, conn, name, eng, clock, inbox)
		})
	}
	return stop, nil
}

func runEdge(ctx context.Context, conn *natsbus.Conn, name string, eng *admission.Engine, clock *node.Clock,
	inbox <-chan *wire.Grant,
) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case g := <-inbox:
			eng.Apply(clock.Now(), *g)
		case <-timer.C:
		}
		now := clock.Now()
		if eng.Due() <= now {
			for _, m := range eng.Report(now) {
				data, err := wire.EncodeReport(&m)
				if err == nil {
					err = conn.Publish(wire.ReportSubject("dublin", name), data)
				}
				if err != nil && ctx.Err() == nil {
					fmt.Fprintln(os.Stderr, name, err)
				}
			}
		}
		timer.Reset(max(time.Millisecond, eng.Due().Sub(now)))
	}
}
