package notices

import (
	"encoding/json"
	"fmt"
	"slices"

	"vestibule/internal/core/compress"
)

// document is the stored state of a leader: the state last reported to operators, and the undelivered notices. It is
// one document, so that a notice is either reported and queued, or neither.
type document struct {
	Watch  Watch  `json:"watch"`
	Outbox Outbox `json:"outbox"`
}

// maxDocument bounds a document, in bytes before compression.
const maxDocument = 16 << 20

// encode returns the document as compressed JSON: 10,000 rooms must fit into one message.
func (d *document) encode() ([]byte, error) {
	text, err := json.Marshal(d)
	if err != nil {
		return nil, fmt.Errorf("notices: %w", err)
	}
	return compress.Gzip(text), nil
}

// decodeDocument decodes the output of encode. It ignores fields of later releases, and drops what it cannot use.
func decodeDocument(data []byte) (*document, error) {
	text, err := compress.Gunzip(data, maxDocument)
	d := &document{}
	if err == nil {
		err = json.Unmarshal(text, d)
	}
	if err != nil {
		return nil, fmt.Errorf("notices: %w", err)
	}
	d.clean()
	return d, nil
}

// clean removes entries without contents.
func (d *document) clean() {
	for id, r := range d.Watch.Rooms {
		if r == nil {
			delete(d.Watch.Rooms, id)
			continue
		}
		for event, e := range r.Events {
			if e == nil {
				delete(r.Events, event)
			}
		}
	}
	for key, a := range d.Watch.Alarms {
		if a == nil {
			delete(d.Watch.Alarms, key)
		}
	}
	for id, n := range d.Outbox.Notices {
		if n == nil {
			delete(d.Outbox.Notices, id)
		}
	}
	for id, q := range d.Outbox.Queues {
		if q == nil {
			delete(d.Outbox.Queues, id)
			continue
		}
		q.Items = slices.DeleteFunc(q.Items, func(i Item) bool {
			return d.Outbox.Notices[i.ID] == nil || i.Tries < 0 || i.Tries > len(delays)
		})
	}
}
