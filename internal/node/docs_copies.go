package node

import (
	"encoding/json"
	"log/slog"
	"time"

	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// handEvery is how often questions of the leading global are answered at most.
const handEvery = 500 * time.Millisecond

// Hand lets this node of a data centre, or of [wire.Root], tell the leading global of
// what that one lacks, of those of the documents that are named: keys of which it tells
// another sum, the list of data centres and the rooms where it tells an older version.
// Of the rooms only the version is told: what they are says the rooms file. It answers
// until stop is called.
func (f *Fleet) Hand(bus wire.Bus, dc string, documents ...string) (stop func(), err error) {
	var last time.Time
	return bus.Subscribe(wire.AskSubject, func(_ string, question []byte) {
		var ask wire.CopyAsk
		if err := json.Unmarshal(question, &ask); err != nil {
			f.log.Warn("question of global refused", slog.Any("error", err))
			return
		}
		if time.Since(last) < handEvery {
			return
		}
		last = time.Now()
		for _, doc := range documents {
			data, err := f.lacking(doc, &ask)
			if err == nil && data != nil {
				err = bus.Publish(wire.CopySubject(doc, dc), data)
			}
			if err != nil {
				f.log.Warn("not handed to global", slog.String("document", doc), slog.Any("error", err))
			}
		}
	})
}

// lacking returns what whoever asks lacks of a document, nil for nothing.
func (f *Fleet) lacking(doc string, ask *wire.CopyAsk) ([]byte, error) {
	switch doc {
	case KeysDocument:
		ring := f.Ring()
		if sum, err := ring.Sum(); err != nil || sum == "" || sum == ask.Keys {
			return nil, err
		}
		return ticket.EncodeKeyring(ring)
	case MembersDocument:
		if m := f.Members(); m != nil && m.Version > ask.Members {
			return EncodeMembers(m)
		}
	case RoomsDocument:
		if v := f.Set().Version(); v > ask.Rooms {
			return json.Marshal(wire.RoomsCopy{Version: v})
		}
	}
	return nil, nil
}
