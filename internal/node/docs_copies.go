package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"vestibule/internal/core/compress"
	"vestibule/internal/core/room/roomdoc"
	"vestibule/internal/core/wire"
)

// handEvery is the minimum time between answers to the leading global.
const handEvery = 500 * time.Millisecond

// copyPart is the size of a part of a document, in bytes.
const copyPart = 256 << 10

// MaxCopyParts bounds the parts of a document.
const MaxCopyParts = 128

// Holder is a node that hands its documents to the leading global.
type Holder struct {
	DC   string // or [wire.Root]
	Name string
	Edge bool
	Own  *OwnCopy // of a global; nil for none
}

// OwnCopy is a document that is none of the fleet's.
type OwnCopy struct {
	Document string
	Version  func() uint64 // 0 for none
	Encode   func() ([]byte, error)
}

// Hand makes a node send documents to the leading global that it lacks: keys with another checksum, and a newer list
// of data centres. Newer rooms, controls and draws are announced by their version, and sent when global asks this node
// for them. Hand answers until stop is called.
func (f *Fleet) Hand(bus wire.Bus, h Holder, documents ...string) (stop func(), err error) {
	var last time.Time
	return bus.Subscribe(wire.AskSubject, func(_ string, question []byte) {
		var ask wire.CopyAsk
		if err := json.Unmarshal(question, &ask); err != nil {
			f.log.Warn("invalid request of global for documents", slog.Any("error", err))
			return
		}
		if w := ask.Send; w != nil && w.DC == h.DC && w.From == h.Name {
			if err := f.sendCopy(bus, h, w.Document); err != nil {
				f.log.Warn("document not sent to global", slog.String("document", w.Document), slog.Any("error", err))
			}
		}
		if time.Since(last) < handEvery {
			return
		}
		last = time.Now()
		hand := func(doc string, data []byte, err error) {
			if err == nil && data != nil {
				err = bus.Publish(wire.CopySubject(doc, h.DC), data)
			}
			if err != nil {
				f.log.Warn("document not sent to global", slog.String("document", doc), slog.Any("error", err))
			}
		}
		for _, doc := range documents {
			data, err := missingPart(f, h, doc, &ask)
			hand(h.subject(doc), data, err)
		}
		if o := h.Own; o != nil && o.Version() > ask.Rooms {
			data, err := h.announcement(o.Version())
			hand(o.Document, data, err)
		}
	})
}

// announcement announces a version of a document.
func (h Holder) announcement(version uint64) ([]byte, error) {
	return json.Marshal(wire.Copy{From: h.Name, Version: version})
}

// subject returns the name of a document in the subject of its copies.
func (h Holder) subject(doc string) string {
	if h.Edge && doc != KeysDocument {
		return wire.EdgeCopy(doc)
	}
	return doc
}

// missingPart returns what the asking node lacks of a document, or nil.
func missingPart(f *Fleet, h Holder, doc string, ask *wire.CopyAsk) ([]byte, error) {
	have := map[string]uint64{
		RoomsDocument: ask.Rooms, ControlsDocument: ask.Controls, DrawsDocument: ask.Draws, MembersDocument: ask.Members,
	}[doc]
	switch v := f.inUse[doc].version(); {
	case doc == KeysDocument:
		ring := f.Ring()
		if sum, err := ring.Sum(); err != nil || sum == "" || sum == ask.Keys {
			return nil, err
		}
	case v <= have:
		return nil, nil
	case doc != MembersDocument:
		return h.announcement(v)
	}
	_, data, err := f.inUse[doc].encoded()
	return data, err
}

// sendCopy sends the content of a document, compressed, in parts.
func (f *Fleet) sendCopy(bus wire.Bus, h Holder, name string) error {
	version, plain, err := f.content(h, name)
	if err != nil {
		return err
	}
	packed := compress.Gzip(plain)
	c := wire.Copy{
		From: h.Name, Version: version, Sum: roomdoc.Hash(packed), Parts: (len(packed) + copyPart - 1) / copyPart,
	}
	if c.Parts > MaxCopyParts {
		return fmt.Errorf("%d bytes are too many", len(packed))
	}
	for ; c.Part < c.Parts; c.Part++ {
		c.Data = packed[c.Part*copyPart : min(len(packed), (c.Part+1)*copyPart)]
		data, err := json.Marshal(c)
		if err == nil {
			err = bus.Publish(wire.CopySubject(name, h.DC), data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// content returns a document as it is stored, by its name in subjects.
func (f *Fleet) content(h Holder, name string) (version uint64, data []byte, err error) {
	if o := h.Own; o != nil && name == o.Document {
		version = o.Version()
		data, err = o.Encode()
		return version, data, err
	}
	doc, edge := wire.IsEdgeCopy(name)
	if edge != h.Edge {
		return 0, nil, errors.New("this node has no such document")
	}
	switch doc {
	case RoomsDocument, ControlsDocument, DrawsDocument:
		if version, data, err = f.inUse[doc].encoded(); data != nil || err != nil {
			return version, data, err
		}
	}
	return 0, nil, errors.New("this node has no such document")
}
