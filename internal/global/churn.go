package global

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"vestibule/internal/core/estimate"
	"vestibule/internal/core/room"
	"vestibule/internal/core/wire"
)

// churnDocument holds the measured session lengths of each room. A leader without it assumes that sessions last as
// long as their ticket, so its first estimates are wrong where visitors leave early.
const churnDocument = "churn"

// maxChurns bounds the rooms in churnDocument; the rooms with the most ended sessions are kept.
const maxChurns = 1000

// roomChurn is one room in churnDocument.
type roomChurn struct {
	Room   room.ID `json:"room,string"`
	Life   float64 `json:"life_s"`
	Young  float64 `json:"young_s"`
	Early  float64 `json:"early"`
	Beyond float64 `json:"beyond_s"`
	Ended  float64 `json:"ended"`
}

// churnKeeper reads churnDocument when a term begins and keeps it current afterwards. It belongs to the
// publisher.
type churnKeeper struct {
	docs    wire.Documents
	learned func() map[room.ID]estimate.Churn
	recall  func(map[room.ID]estimate.Churn)

	read   bool
	stored []byte
}

// keep reads the document once, and writes it if it has changed since.
func (k *churnKeeper) keep(ctx context.Context) error {
	if !k.read {
		data, _, err := k.docs.Get(ctx, churnDocument)
		if err != nil {
			return err
		}
		k.read, k.stored = true, data
		if data != nil {
			known, err := decodeChurn(data)
			if err != nil {
				return fmt.Errorf("%w; it is replaced", err)
			}
			k.recall(known)
			return nil
		}
	}
	data, err := encodeChurn(k.learned())
	if err != nil || data == nil || bytes.Equal(data, k.stored) {
		return err
	}
	_, revision, err := k.docs.Get(ctx, churnDocument) // a store may be rolled back, and a predecessor may write late
	if err != nil {
		return err
	}
	if _, err = k.docs.Put(ctx, churnDocument, data, revision); err != nil {
		return err
	}
	k.stored = data
	return nil
}

// encodeChurn returns nil if nothing was learned.
func encodeChurn(learned map[room.ID]estimate.Churn) ([]byte, error) {
	var all []roomChurn
	for id, c := range learned {
		if c.Early+c.Ended >= 1 {
			all = append(all, roomChurn{
				id, c.Life.Seconds(), tenth(c.YoungFor), tenth(c.Early), tenth(c.Beyond), tenth(c.Ended),
			})
		}
	}
	if all == nil {
		return nil, nil
	}
	slices.SortFunc(all, func(x, y roomChurn) int {
		return cmp.Or(cmp.Compare(y.Early+y.Ended, x.Early+x.Ended), cmp.Compare(x.Room, y.Room))
	})
	return json.Marshal(all[:min(len(all), maxChurns)])
}

func decodeChurn(data []byte) (map[room.ID]estimate.Churn, error) {
	var all []roomChurn
	if err := json.Unmarshal(data, &all); err != nil {
		return nil, fmt.Errorf("document %s: %w", churnDocument, err)
	}
	out := map[room.ID]estimate.Churn{}
	for _, c := range all {
		life := min(max(0, c.Life), (365 * 24 * time.Hour).Seconds())
		out[c.Room] = estimate.Churn{
			Life: time.Duration(life * float64(time.Second)), YoungFor: c.Young, Early: c.Early, Beyond: c.Beyond,
			Ended: c.Ended,
		}
	}
	return out, nil
}

// churn returns the keeper of the measured session lengths. It locks the allocator.
func (l *leadership) churn() *churnKeeper {
	return &churnKeeper{
		docs: l.s.Docs,
		learned: func() map[room.ID]estimate.Churn {
			l.s.mu.Lock()
			defer l.s.mu.Unlock()
			return l.alloc.Churn()
		},
		recall: func(known map[room.ID]estimate.Churn) {
			l.s.mu.Lock()
			defer l.s.mu.Unlock()
			l.alloc.Recall(known)
		},
	}
}

func tenth(x float64) float64 { return math.Round(x*10) / 10 }
