package wire

import (
	"fmt"
	"strings"
	"time"
)

// prefix begins all subjects. Subjects carry the identity of nodes, so that permissions of a role are an allow-list.
// Names of data centres and edges are single tokens; see CheckName.
const prefix = "vestibule.v1."

// Root is the token of global; no data centre may have this name.
const Root = "global"

// ReportSubject is the subject of the reports of child name to parent, a data centre or Root.
func ReportSubject(parent, name string) string { return prefix + parent + ".report." + name }

// GrantSubject is the subject of the grants of parent to child name.
func GrantSubject(parent, name string) string { return prefix + parent + ".grant." + name }

// Reports is the subject of the reports of all children of parent.
func Reports(parent string) string { return prefix + parent + ".report.*" }

// ForgetSubject is the subject of requests to the leading regional of a data centre to forget an edge: see ForgetAsk.
func ForgetSubject(dc string) string { return prefix + dc + ".forget" }

// OrderSubject is the subject of operators' orders by the API: from a global to the leading regional of a data centre.
// The regional does not reply to an inbox, which global would have to open to data centres, but on OrderDoneSubject.
func OrderSubject(dc string) string { return prefix + Root + ".order." + dc }

// OrderDoneSubject is the subject of the results of orders.
func OrderDoneSubject(dc string) string { return prefix + Root + ".done." + dc }

// Order is an order to forget an edge, to begin, or to find a visitor; it and OrderDone are sent as JSON.
type Order struct {
	ID     string    `json:"id"` // random
	Forget ForgetAsk `json:"forget"`
	Begin  bool      `json:"begin,omitempty"`  // instead: nobody was ever admitted in the fleet
	Number string    `json:"number,omitempty"` // instead: find the sessions with this reference number
}

// OrderDone is the result of an order.
type OrderDone struct {
	ID string `json:"id"` // of the order
	ForgetAnswer
	Sessions []FoundSession `json:"sessions,omitempty"`
}

// FoundSession is a session with a wanted reference number.
type FoundSession struct {
	Room  string    `json:"room"` // name
	Edge  string    `json:"edge"`
	Until time.Time `json:"until"`
}

// ForgetAsk is an operator's statement that an edge has ended; it and ForgetAnswer are sent as JSON.
type ForgetAsk struct {
	Edge     string `json:"edge"`
	All      bool   `json:"all,omitempty"`             // every silent edge, instead of one name
	Instance uint64 `json:"instance,string,omitempty"` // 0 for all silent instances of the name
	Over     bool   `json:"over,omitempty"`            // with All: its sessions have ended too
}

// ForgetAnswer is the result; one of the two fields is empty.
type ForgetAnswer struct {
	Done  string `json:"done,omitempty"`
	Error string `json:"error,omitempty"`
}

// NumbersSubject carries the numbers of all rooms from the leading global to the other candidates, for the API only.
const NumbersSubject = prefix + Root + ".numbers"

// FleetSubject carries the status of each global candidate to the others, and of the data centres from the leader, for
// the API only.
const FleetSubject = prefix + Root + ".fleet"

// AuditSubject is the subject of audit entries about something: see package audit.
func AuditSubject(about string) string { return prefix + Root + ".audit." + about }

// Audits are the subjects of all entries.
const Audits = prefix + Root + ".audit.>"

// HistoryLevel is a stream of the history of rooms.
type HistoryLevel int

// The levels: the leader's record of all rooms each second, and blocks of points of one room.
const (
	HistoryLog     HistoryLevel = iota
	HistorySeconds              // a minute of points
	HistoryMinutes              // an hour of points
	HistoryHours                // a day of points
	HistoryMonths               // thirty days of the points of hours
)

// HistorySubject is the subject of a level of the history: of a room by its public ID, or of a part of the log.
func HistorySubject(level HistoryLevel, of string) string {
	return prefix + Root + ".history." + [...]string{"log", "seconds", "minutes", "hours", "months"}[level] + "." + of
}

// Histories matches all subjects of the history.
const Histories = prefix + Root + ".history.>"

// PushSubject is the subject of the subscription of a visitor to notifications: a push.Record, empty for none any more.
func PushSubject(room, visitor uint64) string {
	return fmt.Sprintf("%s.push.%016x.%016x", prefix+Root, room, visitor)
}

// PushOf is the inverse of [PushSubject]; ok is false for any other subject.
func PushOf(subject string) (room, visitor uint64, ok bool) {
	n, err := fmt.Sscanf(subject, prefix+Root+".push.%16x.%16x", &room, &visitor)
	return room, visitor, err == nil && n == 2 && subject == PushSubject(room, visitor)
}

// MarksSubject is the subject of some push.Mark, with a number of its own.
func MarksSubject(number uint64) string {
	return fmt.Sprintf("%s.push.told.%016x", prefix+Root, number)
}

// Pushes are the subjects of all subscriptions and marks.
const Pushes = prefix + Root + ".push.*.*"

// OutboxShards is the number of shards of the notifications to deliver.
const OutboxShards = 16

// OutboxSubject is the subject of the notifications of a shard.
func OutboxSubject(shard int) string { return fmt.Sprintf("%s.outbox.%d", prefix+Root, shard) }

// Outboxes are the subjects of all shards.
const Outboxes = prefix + Root + ".outbox.*"

// CallSubject carries, once a second, how far each room with notifications has called its visitors: from the leading
// global to the notifiers.
const CallSubject = prefix + Root + ".call"

// NotifierSubject carries the names of the live notifiers, once a second.
const NotifierSubject = prefix + Root + ".notifier"

// NotifyingSubject carries the state of each notifier to all globals, once a second, for the API only: a push.State.
const NotifyingSubject = prefix + Root + ".notifying"

// AskSubject carries the leading global's versions of the shared documents, so that nodes with newer ones send them:
// see CopyAsk.
const AskSubject = prefix + Root + ".ask"

// CopySubject is the subject by which nodes of a data centre, or of Root, send a document to the leading global. Only
// it may subscribe, since the documents include keys.
func CopySubject(document, dc string) string { return prefix + Root + ".copy." + document + "." + dc }

// Copies matches all subjects of [CopySubject].
const Copies = prefix + Root + ".copy.*.*"

// CopyOf returns the document and the data centre of a subject that matches Copies; ok is false for any other.
func CopyOf(subject string) (document, dc string, ok bool) {
	rest, ok := strings.CutPrefix(subject, prefix+Root+".copy.")
	if ok {
		document, dc, ok = strings.Cut(rest, ".")
	}
	return document, dc, ok
}

// CopyAsk holds the leading global's versions; it is sent as JSON.
type CopyAsk struct {
	Keys     string      `json:"keys"`           // checksum of the key ring, "" for none
	Rooms    uint64      `json:"rooms"`          // version of the rooms
	Members  uint64      `json:"members"`        // version of the membership list
	Controls uint64      `json:"controls"`       // version of the operators' controls
	Draws    uint64      `json:"draws"`          // version of the public state of draws
	Send     *CopyWanted `json:"send,omitempty"` // a document that one node is to send
}

// CopyWanted names a document that a node has announced.
type CopyWanted struct {
	Document string `json:"document"`
	DC       string `json:"dc"` // data centre of the node, or Root
	From     string `json:"from"`
}

// Copy is the announcement of a node's version of a document, or a part of its content; it is sent as JSON. Every node
// may announce a newer version at once, and one of them sends the content.
type Copy struct {
	From    string `json:"from,omitempty"` // the node; "" cannot send the content
	Version uint64 `json:"version"`
	Sum     string `json:"sum,omitempty"` // checksum of the compressed content
	Part    int    `json:"part,omitempty"`
	Parts   int    `json:"parts,omitempty"` // 0 for an announcement
	Data    []byte `json:"data,omitempty"`
}

// Of an edge's copies the leading global makes use only if no other node has any: edges are exposed to visitors.
const edgeCopy = "edge-"

// EdgeCopy returns the name in subjects of a document that an edge announces.
func EdgeCopy(document string) string { return edgeCopy + document }

// IsEdgeCopy returns the document of such a name. For other names, which are of the document itself, ok is false.
func IsEdgeCopy(name string) (document string, ok bool) { return strings.CutPrefix(name, edgeCopy) }

// RejoinSubject is the subject of an operator's statement that a data centre is the listed one, with a lost store. The
// leading regional answers with a ForgetAnswer.
func RejoinSubject(dc string) string { return prefix + dc + ".rejoin" }

// CheckName returns an error for an invalid name of a data centre or an edge: it must be 1 to 64 characters of a-z,
// 0-9, - and _, and not Root.
func CheckName(name string) error {
	if name == Root {
		return fmt.Errorf("must not be %q", Root)
	}
	ok := len(name) >= 1 && len(name) <= 64
	for _, c := range name {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_')
	}
	if !ok {
		return fmt.Errorf("must be 1 to 64 characters of a-z, 0-9, - and _, got %q", name)
	}
	return nil
}
