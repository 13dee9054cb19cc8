package notices

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"vestibule/internal/core/fleettime"
)

// Kind is the kind of a notice: the type of a webhook's message.
type Kind string

// The kinds.
const (
	RoomQueueing    Kind = "room.queueing"
	RoomClear       Kind = "room.clear"
	RoomCalled      Kind = "room.called" // only to webhooks that name it
	RoomPaused      Kind = "room.paused"
	RoomResumed     Kind = "room.resumed"
	LimitChanged    Kind = "limit.changed"
	Overcommit      Kind = "room.overcommit"
	OvercommitEnded Kind = "room.overcommit_ended"
	ReleaseDone     Kind = "release.done"
	EventPrequeue   Kind = "event.prequeue"
	EventDrawn      Kind = "event.drawn"
	EventStarted    Kind = "event.started"
	EventEnded      Kind = "event.ended"
	SiteDown        Kind = "site.down"
	SiteUp          Kind = "site.up"
	OriginSlow      Kind = "origin.slow"
	OriginRecovered Kind = "origin.recovered"
	AlarmRaised     Kind = "alarm.raised"
	AlarmEnded      Kind = "alarm.ended"
	WebhookTest     Kind = "webhook.test" // sent only on request
)

// Kinds are the kinds that a webhook may be limited to.
var Kinds = []Kind{
	RoomQueueing, RoomClear, RoomCalled, RoomPaused, RoomResumed, LimitChanged, Overcommit, OvercommitEnded, ReleaseDone,
	EventPrequeue, EventDrawn, EventStarted, EventEnded, SiteDown, SiteUp, OriginSlow, OriginRecovered, AlarmRaised, AlarmEnded,
}

// Notice is a message to operators, sent once.
type Notice struct {
	ID   string         `json:"id"` // the same at every leader
	Kind Kind           `json:"kind"`
	At   fleettime.Time `json:"at"` // of the cause
	Data Data           `json:"data"`
}

// Data has the details of a notice. Those that do not belong to its kind are absent.
type Data struct {
	Text     string `json:"text"` // one sentence for people
	RoomID   string `json:"room_id,omitempty"`
	RoomName string `json:"room_name,omitempty"`

	Edges       int     `json:"edges,omitempty"` // at which the site does not answer
	Waiting     int     `json:"waiting,omitempty"`
	WaitSeconds float64 `json:"wait_seconds,omitempty"` // of a visitor that joins now

	CalledTo string `json:"called_to,omitempty"` // visitors with such a place, or an earlier one, may enter
	SoonTo   string `json:"soon_to,omitempty"`   // and those will in about five minutes

	By     string `json:"by,omitempty"`
	Reason string `json:"reason,omitempty"`

	Before *Limits `json:"before,omitempty"`
	After  *Limits `json:"after,omitempty"`

	Overcommit int64 `json:"overcommit_sessions,omitempty"`

	ReleaseID uint64 `json:"release_id,omitempty"`
	People    int    `json:"people,omitempty"`
	LetIn     *int   `json:"let_in,omitempty"` // absent if unknown

	EventID   string `json:"event_id,omitempty"`
	EventName string `json:"event_name,omitempty"`

	OriginP95    float64 `json:"origin_p95_seconds,omitempty"`
	OriginErrors float64 `json:"origin_error_share,omitempty"`

	Alarm string `json:"alarm,omitempty"`
}

// Limits are the limits of a room in force.
type Limits struct {
	Total int `json:"total_active_users"`
	Rate  int `json:"new_users_per_minute"`
}

// Body returns the message of a webhook.
func (n *Notice) Body() ([]byte, error) {
	return json.Marshal(struct {
		Type      Kind   `json:"type"`
		Timestamp string `json:"timestamp"`
		Data      Data   `json:"data"`
	}{n.Kind, n.At.String(), n.Data})
}

// newNotice returns a notice about an object: the ID of a room, or an alarm. cause identifies the cause among those of
// its kind and object. It is what made the change (the beginning of a pause, the number of a release, an event and its
// start) or, for a state that is measured, its beginning as the first leader stored it.
func newNotice(kind Kind, object, cause string, at fleettime.Time, d Data) Notice {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%s", kind, object, cause))
	return Notice{ID: "msg_" + hex.EncodeToString(sum[:16]), Kind: kind, At: at, Data: d}
}

// causeAt returns the cause of a notice that is known by its time.
func causeAt(t fleettime.Time) string { return strconv.FormatInt(int64(t), 10) }
