package notices

import (
	"encoding/json"
	"fmt"
	"maps"
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
	dropNil(d.Watch.Rooms)
	for _, r := range d.Watch.Rooms {
		dropNil(r.Events)
	}
	dropNil(d.Watch.Alarms)
	dropNil(d.Outbox.Notices)
	dropNil(d.Outbox.Queues)
	for _, q := range d.Outbox.Queues {
		q.Items = slices.DeleteFunc(q.Items, func(i Item) bool {
			return d.Outbox.Notices[i.ID] == nil || i.Tries < 0 || i.Tries > len(delays)
		})
	}
}

func dropNil[V any](m map[string]*V) {
	maps.DeleteFunc(m, func(_ string, v *V) bool { return v == nil })
}
