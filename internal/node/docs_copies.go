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
	c := &copies{Holder: h, f: f, bus: bus, documents: documents}
	return bus.Subscribe(wire.AskSubject, func(_ string, question []byte) { c.answer(question) })
}

// copies are the documents that a node hands to the leading global.
type copies struct {
	Holder
	f         *Fleet
	bus       wire.Bus
	documents []string
	last      time.Time // of an answer
}

// answer answers a question of the leading global.
func (c *copies) answer(question []byte) {
	var ask wire.CopyAsk
	if err := json.Unmarshal(question, &ask); err != nil {
		c.f.log.Warn("invalid request of global for documents", slog.Any("error", err))
		return
	}
	if w := ask.Send; w != nil && w.DC == c.DC && w.From == c.Name {
		c.fault(w.Document, c.send(w.Document))
	}
	if time.Since(c.last) < handEvery {
		return
	}
	c.last = time.Now()
	for _, doc := range c.documents {
		data, err := c.missing(doc, &ask)
		c.hand(c.subject(doc), data, err)
	}
	if o := c.Own; o != nil && o.Version() > ask.Rooms {
		data, err := c.announcement(o.Version())
		c.hand(o.Document, data, err)
	}
}

// hand sends a message about a document, if there is one.
func (c *copies) hand(doc string, data []byte, err error) {
	if err == nil && data != nil {
		err = c.bus.Publish(wire.CopySubject(doc, c.DC), data)
	}
	c.fault(doc, err)
}

func (c *copies) fault(doc string, err error) {
	if err != nil {
		c.f.log.Warn("document not sent to global", slog.String("document", doc), slog.Any("error", err))
	}
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

// missing returns the part of a document that the asking node lacks, or nil.
func (c *copies) missing(doc string, ask *wire.CopyAsk) ([]byte, error) {
	have := map[string]uint64{
		RoomsDocument: ask.Rooms, ControlsDocument: ask.Controls, DrawsDocument: ask.Draws, MembersDocument: ask.Members,
	}[doc]
	switch v := c.f.inUse[doc].version(); {
	case doc == KeysDocument:
		ring := c.f.Ring()
		if sum, err := ring.Sum(); err != nil || sum == "" || sum == ask.Keys {
			return nil, err
		}
	case v <= have:
		return nil, nil
	case doc != MembersDocument:
		return c.announcement(v)
	}
	_, data, err := c.f.inUse[doc].encoded()
	return data, err
}

// send sends the content of a document, compressed, in parts.
func (c *copies) send(name string) error {
	version, plain, err := c.content(name)
	if err != nil {
		return err
	}
	packed := compress.Gzip(plain)
	part := wire.Copy{
		From: c.Name, Version: version, Sum: roomdoc.Hash(packed), Parts: (len(packed) + copyPart - 1) / copyPart,
	}
	if part.Parts > MaxCopyParts {
		return fmt.Errorf("%d bytes are too many", len(packed))
	}
	for ; part.Part < part.Parts; part.Part++ {
		part.Data = packed[part.Part*copyPart : min(len(packed), (part.Part+1)*copyPart)]
		data, err := json.Marshal(part)
		if err == nil {
			err = c.bus.Publish(wire.CopySubject(name, c.DC), data)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// content returns a document as it is stored, by its name in subjects.
func (c *copies) content(name string) (version uint64, data []byte, err error) {
	if o := c.Own; o != nil && name == o.Document {
		version = o.Version()
		data, err = o.Encode()
		return version, data, err
	}
	doc, edge := wire.IsEdgeCopy(name)
	if edge != c.Edge {
		return 0, nil, errors.New("this node has no such document")
	}
	switch doc {
	case RoomsDocument, ControlsDocument, DrawsDocument:
		if version, data, err = c.f.inUse[doc].encoded(); data != nil || err != nil {
			return version, data, err
		}
	}
	return 0, nil, errors.New("this node has no such document")
}
