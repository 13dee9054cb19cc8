package wire

import (
	"fmt"
	"strings"
)

// Subjects carry identity, so that what a role may say and hear can be an
// allow-list. Names of data centres and edges are single tokens; see CheckName.
//
//	vestibule.v1.<dc>.report.<edge>    edge to regional
//	vestibule.v1.<dc>.grant.<edge>     regional to edge
//	vestibule.v1.global.report.<dc>    regional to global
//	vestibule.v1.global.grant.<dc>     global to regional
//	vestibule.v1.<dc>.forget           an operator asks the leading regional
//	vestibule.v1.global.ask            the leading global asks every node: see CopyAsk
//	vestibule.v1.global.copy.<document>.<dc>
//	                                   a node tells what the leading global lacks
const prefix = "vestibule.v1."

// Root is the token that stands for global; no data centre may be called so.
const Root = "global"

// ReportSubject is where a child called name of the parent (a data centre, or
// Root) reports.
func ReportSubject(parent, name string) string { return prefix + parent + ".report." + name }

// GrantSubject is where a child called name of the parent hears grants.
func GrantSubject(parent, name string) string { return prefix + parent + ".grant." + name }

// Reports is the subject by which a parent hears all its children.
func Reports(parent string) string { return prefix + parent + ".report.*" }

// ForgetSubject is where the leading regional of a data centre takes an operator's word
// that an edge has ended: see ForgetAsk.
func ForgetSubject(dc string) string { return prefix + dc + ".forget" }

// ForgetAsk asks for an edge to be forgotten; it and ForgetAnswer travel as JSON.
type ForgetAsk struct {
	Edge string `json:"edge"`
	All  bool   `json:"all,omitempty"`                // every edge that is not heard, in place of one name
	Inc  uint64 `json:"incarnation,string,omitempty"` // 0 for all silent ones of the name
}

// ForgetAnswer says what became of it; one of the two is empty.
type ForgetAnswer struct {
	Done  string `json:"done,omitempty"`
	Error string `json:"error,omitempty"`
}

// NumbersSubject is where the leading global tells the other candidates the numbers of all
// rooms, for the API. Nothing is decided by them.
const NumbersSubject = prefix + Root + ".numbers"

// FleetSubject is where each candidate for global tells the others how it is, and the leading
// one how the data centres are, for the API. Nothing is decided by it.
const FleetSubject = prefix + Root + ".fleet"

// AuditSubject is where globals publish an entry about something: see package audit.
func AuditSubject(about string) string { return prefix + Root + ".audit." + about }

// Audits are the subjects of all entries.
const Audits = prefix + Root + ".audit.>"

// AskSubject is where the leading global tells what it knows of the documents that all
// nodes keep, so that those who know more hand it over: see CopyAsk.
const AskSubject = prefix + Root + ".ask"

// CopySubject is where nodes of a data centre, or of Root, hand a document to the leading
// global. Nobody else may hear what is said there: it holds keys.
func CopySubject(document, dc string) string { return prefix + Root + ".copy." + document + "." + dc }

// Copies is the subject by which the leading global hears all documents that it is handed.
const Copies = prefix + Root + ".copy.*.*"

// CopyOf returns the document and the data centre of which a subject that matches Copies
// tells; ok is false for any other.
func CopyOf(subject string) (document, dc string, ok bool) {
	rest, ok := strings.CutPrefix(subject, prefix+Root+".copy.")
	if ok {
		document, dc, ok = strings.Cut(rest, ".")
	}
	return document, dc, ok
}

// CopyAsk is what the leading global knows; it travels as JSON.
type CopyAsk struct {
	Keys    string `json:"keys"`    // sum of the key ring, "" for none
	Rooms   uint64 `json:"rooms"`   // version of the rooms
	Members uint64 `json:"members"` // version of the list of data centres
}

// RoomsCopy is what is handed over of the rooms; it travels as JSON.
type RoomsCopy struct {
	Version uint64 `json:"version"`
}

// RejoinSubject is where the leading regional of a data centre takes an operator's word
// that it is the data centre of the list, whose store was lost; it answers with a
// ForgetAnswer.
func RejoinSubject(dc string) string { return prefix + dc + ".rejoin" }

// CheckName reports what is wrong with the name of a data centre or an edge:
// it must be 1 to 64 characters of a-z, 0-9, - and _, and not Root.
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
