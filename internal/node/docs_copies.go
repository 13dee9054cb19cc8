package node

import (
	"encoding/json"
	"log/slog"
	"time"

	"vestibule/internal/core/ticket"
	"vestibule/internal/core/wire"
)

// handEvery is the minimum time between answers to the leading global.
const handEvery = 500 * time.Millisecond

// Hand makes this node of a data centre, or of [wire.Root], send documents to the leading global that it lacks:
// keys with another checksum, and the list of data centres and the rooms if its version is older. Of the rooms only
// the version is sent: their content is in the rooms file. Hand answers until stop is called.
func (f *Fleet) Hand(bus wire.Bus, dc string, documents ...string) (stop func(), err error) {
	var last time.Time
	return bus.Subscribe(wire.AskSubject, func(_ string, question []byte) {
		var ask wire.CopyAsk
		if err := json.Unmarshal(question, &ask); err != nil {
			f.log.Warn("invalid request of global for documents", slog.Any("error", err))
			return
		}
		if time.Since(last) < handEvery {
			return
		}
		last = time.Now()
		for _, doc := range documents {
			data, err := missingPart(f, doc, &ask)
			if err == nil && data != nil {
				err = bus.Publish(wire.CopySubject(doc, dc), data)
			}
			if err != nil {
				f.log.Warn("document not sent to global", slog.String("document", doc), slog.Any("error", err))
			}
		}
	})
}

// missingPart returns the part of a document that the asking node lacks, or nil.
func missingPart(f *Fleet, doc string, ask *wire.CopyAsk) ([]byte, error) {
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
